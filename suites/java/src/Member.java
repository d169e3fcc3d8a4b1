// A member of a consumer group on its own thread, with what it was assigned, what was taken, and what it read.

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.common.TopicPartition;

final class Member implements ConsumerRebalanceListener {
    final Set<Integer> assigned = ConcurrentHashMap.newKeySet();
    final List<String> read = new CopyOnWriteArrayList<>();
    final AtomicInteger revokedInAll = new AtomicInteger();
    final AtomicInteger assignments = new AtomicInteger();
    volatile Throwable failure;

    private final Consumer<byte[], byte[]> consumer;
    private final Thread thread;
    private volatile boolean leaving;

    Member(String group, String topic, Map<String, ?> settings) {
        consumer = Cluster.consumer(group, settings);
        thread = new Thread(() -> follow(topic), "member of " + group);
        thread.setDaemon(true);
        thread.start();
    }

    private void follow(String topic) {
        try (consumer) {
            consumer.subscribe(List.of(topic), this);
            while (!leaving) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    read.add(new String(record.value()));
                }
                if (!records.isEmpty()) {
                    consumer.commitSync();
                }
            }
        } catch (Throwable thrown) {
            failure = thrown;
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        partitions.forEach(partition -> assigned.add(partition.partition()));
        assignments.incrementAndGet();
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        partitions.forEach(partition -> assigned.remove(partition.partition()));
        revokedInAll.addAndGet(partitions.size());
    }

    void leave() throws Exception {
        leaving = true;
        thread.join(Cluster.WAIT_SECONDS * 1000);
        if (thread.isAlive()) {
            throw new AssertionError("a member did not leave in time");
        }
        if (failure != null) {
            throw new AssertionError("a member failed", failure);
        }
    }

    /** Whether every partition has exactly one owner, and every member as many as is fair. */
    static boolean shareFairly(List<Member> members, int partitions) {
        int sum = 0;
        Set<Integer> together = ConcurrentHashMap.newKeySet();
        for (Member member : members) {
            int share = member.assigned.size();
            if (share < partitions / members.size() || share > (partitions + members.size() - 1) / members.size()) {
                return false;
            }
            sum += share;
            together.addAll(member.assigned);
        }
        return sum == partitions && together.size() == partitions;
    }
}
