// Records with the Java client: every part intact under every compression, exactly once over a crash, positions.

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class RecordTest {
    @ParameterizedTest
    @ValueSource(strings = {"none", "gzip", "snappy", "lz4", "zstd"})
    void everyPartOfARecordComesBack(String codec) throws Exception {
        String topic = Cluster.fresh("parts-" + codec);
        Cluster.create(topic, 1);
        List<ProducerRecord<byte[], byte[]>> sent = new ArrayList<>();
        for (int number = 0; number < 500; number++) {
            byte[] key = number % 5 == 0 ? null : ("key " + number).getBytes();
            byte[] value = number % 7 == 0 ? null : number % 11 == 0 ? new byte[0] : ("value " + number + " ").repeat(20).getBytes();
            List<org.apache.kafka.common.header.Header> headers = number % 3 != 0
                    ? List.of()
                    : List.of(
                            new RecordHeader("count", String.valueOf(number).getBytes()),
                            new RecordHeader("twice", "1".getBytes()),
                            new RecordHeader("twice", "2".getBytes()),
                            new RecordHeader("null", null),
                            new RecordHeader("empty", new byte[0]));
            sent.add(new ProducerRecord<>(topic, 0, 1_600_000_000_000L + number, key, value, headers));
        }
        try (Producer<byte[], byte[]> producer = Cluster.producer(Map.of("compression.type", codec, "linger.ms", "20"))) {
            List<Future<RecordMetadata>> waiting = sent.stream().map(producer::send).toList();
            for (int number = 0; number < sent.size(); number++) {
                RecordMetadata metadata = waiting.get(number).get(Cluster.WAIT_SECONDS, TimeUnit.SECONDS);
                assertEquals(number, metadata.offset());
            }
        }
        for (ConsumerRecord<byte[], byte[]> came : readAll(topic, 0, sent.size())) {
            ProducerRecord<byte[], byte[]> record = sent.get((int) came.offset());
            assertArrayEquals(record.key(), came.key());
            assertArrayEquals(record.value(), came.value());
            assertEquals(record.headers(), came.headers());
            assertEquals(record.timestamp(), came.timestamp());
            assertEquals("CreateTime", came.timestampType().name);
        }
    }

    private static List<ConsumerRecord<byte[], byte[]>> readAll(String topic, int partition, int count) {
        try (Consumer<byte[], byte[]> consumer = Cluster.consumer(topic + "-reader", Map.of())) {
            consumer.assign(List.of(new TopicPartition(topic, partition)));
            return Cluster.read(consumer, count);
        }
    }

    @Test
    void anIdempotentProducerOverACrash() throws Exception {
        Assumptions.assumeTrue(System.getenv("SUITE_CRASH") != null, "the broker is not ours to kill");
        String topic = Cluster.fresh("idempotent");
        int partitions = 3;
        int each = 3000;
        Cluster.create(topic, partitions);
        ConcurrentLinkedQueue<Exception> failures = new ConcurrentLinkedQueue<>();
        CompletableFuture<Void> crashed = null;
        try (Producer<byte[], byte[]> producer = Cluster.producer(
                Map.of("enable.idempotence", "true", "retry.backoff.ms", "50", "reconnect.backoff.max.ms", "200"))) {
            for (int number = 0; number < each; number++) {
                for (int partition = 0; partition < partitions; partition++) {
                    byte[] value = String.valueOf(number).getBytes();
                    producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, failure) -> {
                        if (failure != null) {
                            failures.add(failure);
                        }
                    });
                }
                if (number == each / 3) {
                    crashed = CompletableFuture.runAsync(() -> {
                        try {
                            Cluster.crash();
                        } catch (Exception failure) {
                            failures.add(failure);
                        }
                    });
                }
                if (number % 20 == 0) {
                    Thread.sleep(5);
                }
            }
            producer.flush();
        }
        crashed.get(Cluster.WAIT_SECONDS, TimeUnit.SECONDS);
        assertEquals(List.of(), List.copyOf(failures));
        for (int partition = 0; partition < partitions; partition++) {
            List<Integer> came = readAll(topic, partition, each).stream().map(r -> Integer.valueOf(new String(r.value()))).toList();
            assertEquals(IntStream.range(0, each).boxed().toList(), came, "partition " + partition);
        }
    }

    @Test
    void positionsByOffsetAndTime() throws Exception {
        String topic = Cluster.fresh("positions");
        Cluster.create(topic, 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        long start = 1_700_000_000_000L;
        try (Producer<byte[], byte[]> producer = Cluster.producer(Map.of())) {
            for (int number = 0; number < 100; number++) {
                producer.send(new ProducerRecord<>(topic, 0, start + 1000L * number, null, String.valueOf(number).getBytes()));
                if (number % 10 == 9) {
                    producer.flush();
                }
            }
        }
        try (Consumer<byte[], byte[]> consumer = Cluster.consumer(topic, Map.of())) {
            assertEquals(Map.of(partition, 0L), consumer.beginningOffsets(Set.of(partition)));
            assertEquals(Map.of(partition, 100L), consumer.endOffsets(Set.of(partition)));
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, start + 37_500)).get(partition);
            assertEquals(38, found.offset());
            assertEquals(start + 38_000, found.timestamp());
            consumer.assign(List.of(partition));
            consumer.seek(partition, 95);
            assertEquals(95, Cluster.read(consumer, 5).get(0).offset());
            consumer.seekToBeginning(List.of(partition));
            assertEquals(0, Cluster.read(consumer, 100).get(0).offset());
            assertEquals(100, consumer.position(partition));
        }
        try (Consumer<byte[], byte[]> consumer = Cluster.consumer(topic, Map.of("auto.offset.reset", "none"))) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 1000);
            assertThrows(OffsetOutOfRangeException.class, () -> Cluster.read(consumer, 1));
        }
    }

    @Test
    void aTopicAppearsWhenItIsFirstWrittenTo() throws Exception {
        String topic = Cluster.fresh("appears");
        Cluster.send(topic, 0, List.of("first"));
        assertFalse(readAll(topic, 0, 1).isEmpty());
    }
}
