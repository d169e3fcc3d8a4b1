// Topics through the Java AdminClient: create, describe, list, refuse, delete.

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.junit.jupiter.api.Test;

class AdminTest {
    private static void assertFails(Class<? extends Exception> expected, KafkaFuture<?> future) {
        assertInstanceOf(expected, assertThrows(ExecutionException.class, future::get).getCause());
    }

    @Test
    void topicsAreCreatedDescribedListedAndDeleted() throws Exception {
        String topic = Cluster.fresh("admin");
        try (Admin admin = Cluster.admin()) {
            admin.createTopics(List.of(new NewTopic(topic, 5, (short) 1))).all().get();
            TopicDescription description = admin.describeTopics(Set.of(topic)).topicNameValues().get(topic).get();
            assertEquals(5, description.partitions().size());
            assertFalse(description.isInternal());
            int node = admin.describeCluster().nodes().get().iterator().next().id();
            description.partitions().forEach(partition -> {
                assertEquals(node, partition.leader().id());
                assertEquals(1, partition.isr().size());
            });
            assertTrue(admin.listTopics().names().get().contains(topic));
            assertFails(TopicExistsException.class, admin.createTopics(List.of(new NewTopic(topic, 5, (short) 1))).all());
            assertFails(InvalidTopicException.class, admin.createTopics(List.of(new NewTopic("no/slashes", 1, (short) 1))).all());
            assertFails(
                    InvalidReplicationFactorException.class,
                    admin.createTopics(List.of(new NewTopic(Cluster.fresh("copies"), 1, (short) 3))).all());
            admin.deleteTopics(Set.of(topic)).all().get();
            Cluster.await("it is gone", () -> {
                try {
                    return !admin.listTopics().names().get().contains(topic);
                } catch (Exception failure) {
                    throw new AssertionError(failure);
                }
            });
            assertFails(UnknownTopicOrPartitionException.class, admin.describeTopics(Set.of(topic)).allTopicNames());
            assertFails(UnknownTopicOrPartitionException.class, admin.deleteTopics(Set.of(topic)).all());
        }
    }

    @Test
    void offsetsAreListed() throws Exception {
        String topic = Cluster.fresh("offsets");
        Cluster.create(topic, 2);
        TopicPartition written = new TopicPartition(topic, 0);
        TopicPartition empty = new TopicPartition(topic, 1);
        try (Producer<byte[], byte[]> producer = Cluster.producer(Map.of())) {
            for (long timestamp : List.of(1000L, 3000L, 2000L)) {
                producer.send(new ProducerRecord<>(topic, 0, timestamp, null, new byte[] {1})).get();
            }
        }
        try (Admin admin = Cluster.admin()) {
            assertEquals(3, offset(admin, written, OffsetSpec.latest()));
            assertEquals(0, offset(admin, written, OffsetSpec.earliest()));
            assertEquals(1, offset(admin, written, OffsetSpec.maxTimestamp()));
            assertEquals(1, offset(admin, written, OffsetSpec.forTimestamp(1001)));
            assertEquals(0, offset(admin, empty, OffsetSpec.latest()));
        }
    }

    private static long offset(Admin admin, TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset();
    }

    @Test
    void numbersOfPartitionsAndCopiesMayBeLeftToTheBroker() throws Exception {
        String topic = Cluster.fresh("defaults");
        try (Admin admin = Cluster.admin()) {
            admin.createTopics(List.of(new NewTopic(topic, Optional.empty(), Optional.empty()))).all().get();
            TopicDescription description = admin.describeTopics(Set.of(topic)).topicNameValues().get(topic).get();
            assertFalse(description.partitions().isEmpty());
        }
    }
}
