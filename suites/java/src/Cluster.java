// What the Java checks share: the broker to talk to, fresh names, clients with short timeouts, and waits.

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.Assumptions;

final class Cluster {
    static final String BOOTSTRAP = System.getenv("SUITE_BOOTSTRAP");
    static final long WAIT_SECONDS = 60;

    private Cluster() {}

    /** A name that no other check and no earlier run has used. */
    static String fresh(String words) {
        return words + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    static Properties properties(Map<String, ?> settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", BOOTSTRAP);
        settings.forEach((name, value) -> properties.put(name, value.toString()));
        return properties;
    }

    static Admin admin() {
        return Admin.create(properties(Map.of()));
    }

    static void create(String topic, int partitions) throws Exception {
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get(WAIT_SECONDS, TimeUnit.SECONDS);
        }
    }

    static Producer<byte[], byte[]> producer(Map<String, ?> settings) {
        return new KafkaProducer<>(properties(settings), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static Consumer<byte[], byte[]> consumer(String group, Map<String, ?> settings) {
        Properties properties = properties(Map.of(
                "group.id", group,
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false",
                "session.timeout.ms", "6000",
                "heartbeat.interval.ms", "500",
                "fetch.max.wait.ms", "200"));
        settings.forEach((name, value) -> properties.put(name, value.toString()));
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Sends `values` to one partition and waits for every acknowledgement. */
    static List<RecordMetadata> send(String topic, int partition, List<String> values) throws Exception {
        try (Producer<byte[], byte[]> producer = producer(Map.of())) {
            List<Future<RecordMetadata>> waiting = new ArrayList<>();
            for (String value : values) {
                waiting.add(producer.send(new ProducerRecord<>(topic, partition, null, value.getBytes())));
            }
            List<RecordMetadata> delivered = new ArrayList<>();
            for (Future<RecordMetadata> future : waiting) {
                delivered.add(future.get(WAIT_SECONDS, TimeUnit.SECONDS));
            }
            return delivered;
        }
    }

    /** Polls until `count` records came; fewer within the time is a failure. */
    static List<ConsumerRecord<byte[], byte[]>> read(Consumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
        while (records.size() < count && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(100)).forEach(records::add);
        }
        Assertions.assertEquals(count, records.size(), "records read");
        return records;
    }

    static void await(String what, BooleanSupplier holds) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
        while (!holds.getAsBoolean()) {
            Assertions.assertTrue(System.nanoTime() < deadline, "not in time: " + what);
            Thread.sleep(50);
        }
    }

    /** Kills the broker with `kill -9` and starts it on the same data; returns once it is ready. */
    static void crash() throws Exception {
        String command = System.getenv("SUITE_CRASH");
        Assumptions.assumeTrue(command != null && !command.isEmpty(), "the broker is not ours to kill");
        Process process = new ProcessBuilder("sh", "-c", command).inheritIO().start();
        Assertions.assertTrue(process.waitFor(120, TimeUnit.SECONDS), "the broker did not come back");
        Assertions.assertEquals(0, process.exitValue());
    }
}
