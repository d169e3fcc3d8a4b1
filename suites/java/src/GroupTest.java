// Consumer groups with the Java client: eager and cooperative rebalance, static members, commit and resume.

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class GroupTest {
    private static final int PARTITIONS = 6;

    private static List<String> values(String label, int count) {
        return IntStream.range(0, count).mapToObj(number -> label + " " + number).toList();
    }

    private static Set<String> readBy(List<Member> members) {
        Set<String> all = new HashSet<>();
        members.forEach(member -> all.addAll(member.read));
        return all;
    }

    @ParameterizedTest
    @ValueSource(strings = {"RangeAssignor", "CooperativeStickyAssignor"})
    void twoMembersThenThreeThenTwo(String assignor) throws Exception {
        String topic = Cluster.fresh("rebalance");
        Cluster.create(topic, PARTITIONS);
        Map<String, String> settings =
                Map.of("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
        List<Member> members = new ArrayList<>();
        members.add(new Member(topic, topic, settings));
        members.add(new Member(topic, topic, settings));
        Set<String> expected = new HashSet<>();
        Cluster.await("two share", () -> Member.shareFairly(members, PARTITIONS));
        sendRound(topic, "two", expected);
        Cluster.await("two read all", () -> readBy(members).equals(expected));

        members.add(new Member(topic, topic, settings));
        Cluster.await("three share", () -> Member.shareFairly(members, PARTITIONS));
        sendRound(topic, "three", expected);
        Cluster.await("three read all", () -> readBy(members).equals(expected));

        members.get(0).leave();
        List<Member> left = members.subList(1, 3);
        Cluster.await("two share again", () -> Member.shareFairly(left, PARTITIONS));
        sendRound(topic, "two again", expected);
        Cluster.await("all is read", () -> readBy(members).equals(expected));
        if (assignor.startsWith("Cooperative")) {
            int revoked = left.stream().mapToInt(member -> member.revokedInAll.get()).sum();
            assertTrue(revoked < PARTITIONS, "a cooperative rebalance took " + revoked + " partitions away");
        }
        for (Member member : left) {
            member.leave();
        }
        int reads = members.stream().mapToInt(member -> member.read.size()).sum();
        assertEquals(expected.size(), reads, "committed, yet read twice");
    }

    private static void sendRound(String topic, String label, Set<String> expected) throws Exception {
        for (int partition = 0; partition < PARTITIONS; partition++) {
            List<String> values = values(label + " " + partition, 20);
            Cluster.send(topic, partition, values);
            expected.addAll(values);
        }
    }

    @Test
    void aStaticMemberComesBackToItsPartitionsWithoutARebalance() throws Exception {
        String topic = Cluster.fresh("static");
        Cluster.create(topic, 4);
        Map<String, String> settings = Map.of("session.timeout.ms", "30000");
        Member stays = new Member(topic, topic, with(settings, "group.instance.id", "stays"));
        Member returns = new Member(topic, topic, with(settings, "group.instance.id", "returns"));
        Cluster.await("both share", () -> Member.shareFairly(List.of(stays, returns), 4));
        Set<Integer> before = Set.copyOf(returns.assigned);
        int assignments = stays.assignments.get();
        // Closing a static member does not leave the group: its place is kept for the session.
        returns.leave();
        Member back = new Member(topic, topic, with(settings, "group.instance.id", "returns"));
        Cluster.await("it is back", () -> back.assigned.size() == 2);
        assertEquals(before, back.assigned);
        assertEquals(assignments, stays.assignments.get(), "the other member was rebalanced");
        List<String> values = values("v", 10);
        for (int partition = 0; partition < 4; partition++) {
            Cluster.send(topic, partition, values);
        }
        Cluster.await("both read", () -> stays.read.size() == 20 && back.read.size() == 20);
        back.leave();
        stays.leave();
    }

    @Test
    void theSecondHolderOfAnInstanceIdFencesTheFirst() throws Exception {
        String topic = Cluster.fresh("fenced");
        Cluster.create(topic, 2);
        Map<String, String> settings = Map.of("group.instance.id", "one");
        Member first = new Member(topic, topic, settings);
        Cluster.await("the first has all", () -> first.assigned.size() == 2);
        Member second = new Member(topic, topic, settings);
        Cluster.await("the first is fenced", () -> first.failure != null);
        assertTrue(first.failure instanceof FencedInstanceIdException, String.valueOf(first.failure));
        Cluster.await("the second has all", () -> second.assigned.size() == 2);
        second.leave();
    }

    @Test
    void aGroupGoesOnWhereItCommitted() throws Exception {
        String topic = Cluster.fresh("resume");
        Cluster.create(topic, 1);
        TopicPartition partition = new TopicPartition(topic, 0);
        Cluster.send(topic, 0, values("v", 100));
        try (Consumer<byte[], byte[]> first = Cluster.consumer(topic, Map.of("max.poll.records", "10"))) {
            first.subscribe(List.of(topic));
            Cluster.read(first, 40);
            first.commitSync(Map.of(partition, new OffsetAndMetadata(40, "forty")));
        }
        try (Consumer<byte[], byte[]> second = Cluster.consumer(topic, Map.of())) {
            OffsetAndMetadata committed = second.committed(Set.of(partition)).get(partition);
            assertEquals(40, committed.offset());
            assertEquals("forty", committed.metadata());
            second.subscribe(List.of(topic));
            assertEquals(40, Cluster.read(second, 60).get(0).offset());
        }
        try (Consumer<byte[], byte[]> other = Cluster.consumer(topic + "-other", Map.of())) {
            assertNull(other.committed(Set.of(partition)).get(partition));
        }
    }

    private static Map<String, String> with(Map<String, String> settings, String name, String value) {
        Map<String, String> all = new HashMap<>(settings);
        all.put(name, value);
        return all;
    }
}
