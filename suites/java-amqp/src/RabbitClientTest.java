// RabbitMQ's own Java client: the one whose habits all others took over, and which connects again by itself.

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class RabbitClientTest {
    private static final long PATIENCE_SECONDS = 20;

    private Connection connection;
    private Channel channel;

    static ConnectionFactory factory() {
        String[] address = System.getenv("SUITE_AMQP").split(":");
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost(address[0]);
        factory.setPort(Integer.parseInt(address[1]));
        factory.setNetworkRecoveryInterval(200);
        return factory;
    }

    static void crash() throws Exception {
        String command = System.getenv("SUITE_CRASH");
        Assumptions.assumeTrue(command != null, "nobody may kill this broker");
        assertEquals(0, new ProcessBuilder("sh", "-c", command).start().waitFor());
    }

    private static String fresh(String words) {
        return words + "-" + UUID.randomUUID();
    }

    private static byte[] bytes(Object value) {
        return value.toString().getBytes();
    }

    @BeforeEach
    void open() throws Exception {
        connection = factory().newConnection("check");
        channel = connection.createChannel();
    }

    @AfterEach
    void close() {
        connection.abort();
    }

    private String queue(Map<String, Object> arguments) throws IOException {
        return channel.queueDeclare("", false, true, false, arguments).getQueue();
    }

    private String taken(BlockingQueue<String> bodies) throws InterruptedException {
        return bodies.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    @Test
    void everythingConfirmedIsConsumedOnceAndInOrder() throws Exception {
        String queue = queue(Map.of());
        channel.confirmSelect();
        for (int number = 0; number < 500; number++) {
            channel.basicPublish("", queue, MessageProperties.PERSISTENT_BASIC, bytes(number));
        }
        channel.waitForConfirmsOrDie(PATIENCE_SECONDS * 1000);
        channel.basicQos(50);
        BlockingQueue<String> bodies = new LinkedBlockingQueue<>();
        channel.basicConsume(queue, false, (tag, delivery) -> {
            bodies.add(new String(delivery.getBody()));
            long number = delivery.getEnvelope().getDeliveryTag();
            if (number % 10 == 0) {
                channel.basicAck(number, true);
            }
        }, tag -> {});
        for (int number = 0; number < 500; number++) {
            assertEquals(Integer.toString(number), taken(bodies));
        }
        assertEquals(0, channel.messageCount(queue));
    }

    @Test
    void everyPropertyComesBack() throws Exception {
        String queue = queue(Map.of());
        Map<String, Object> headers = new HashMap<>();
        headers.put("whole", 5);
        headers.put("long", 5L);
        headers.put("yes", true);
        headers.put("none", null);
        headers.put("time", new Date(1_700_000_000_000L));
        headers.put("decimal", new java.math.BigDecimal("3.14"));
        AMQP.BasicProperties sent = new AMQP.BasicProperties("text/plain", "utf-8", headers, 2, 3, "c", "r", "60000", "m",
                new Date(1_700_000_000_000L), "t", "guest", "a", "cluster");
        channel.basicPublish("", queue, sent, new byte[0]);
        GetResponse got = channel.basicGet(queue, true);
        assertEquals(headers, got.getProps().getHeaders());
        assertEquals(sent.toString().replace("S(", "("), got.getProps().toString().replace("S(", "("));
    }

    @Test
    void whatGoesNowhereComesBackBeforeItIsConfirmed() throws Exception {
        BlockingQueue<String> events = new LinkedBlockingQueue<>();
        channel.addReturnListener(returned -> events.add("returned " + returned.getReplyCode()));
        channel.addConfirmListener((tag, multiple) -> events.add("acked"), (tag, multiple) -> events.add("nacked"));
        channel.confirmSelect();
        channel.basicPublish("amq.fanout", fresh("nowhere"), true, null, bytes("m"));
        assertEquals("returned 312", taken(events));
        assertEquals("acked", taken(events));
    }

    @Test
    void whatIsRejectedComesBackAfterAWhileAndIsCounted() throws Exception {
        String work = fresh("work");
        String later = queue(Map.of("x-dead-letter-exchange", "", "x-dead-letter-routing-key", work, "x-message-ttl", 30));
        channel.queueDeclare(work, false, true, false, Map.of("x-dead-letter-exchange", "", "x-dead-letter-routing-key", later));
        BlockingQueue<List<?>> deaths = new LinkedBlockingQueue<>();
        channel.basicConsume(work, false, (tag, delivery) -> {
            long number = delivery.getEnvelope().getDeliveryTag();
            if (number < 3) {
                channel.basicReject(number, false);
            } else {
                deaths.add((List<?>) delivery.getProperties().getHeaders().get("x-death"));
                channel.basicAck(number, false);
            }
        }, tag -> {});
        channel.basicPublish("", work, null, bytes("m"));
        List<?> history = deaths.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
        assertNotNull(history);
        List<String> told = new ArrayList<>();
        for (Object entry : history) {
            Map<?, ?> death = (Map<?, ?>) entry;
            told.add(death.get("reason") + " " + death.get("queue") + " " + death.get("count"));
        }
        assertEquals(List.of("expired " + later + " 2", "rejected " + work + " 2"), told);
    }

    @Test
    void exchangesPassOnByTopicHeadersAndHash() throws Exception {
        String topic = fresh("topic");
        String headers = fresh("headers");
        String hash = fresh("hash");
        channel.exchangeDeclare(topic, "topic", false, true, null);
        channel.exchangeDeclare(headers, "headers", false, true, null);
        channel.exchangeDeclare(hash, "x-consistent-hash", false, true, null);
        channel.exchangeBind(headers, topic, "stock.#");
        channel.exchangeBind(hash, headers, "", Map.of("x-match", "all", "kind", "a"));
        List<String> queues = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            queues.add(queue(Map.of()));
            channel.queueBind(queues.get(number), hash, "10");
        }
        channel.confirmSelect();
        for (int number = 0; number < 90; number++) {
            AMQP.BasicProperties properties =
                    new AMQP.BasicProperties.Builder().headers(Map.of("kind", number % 3 == 0 ? "a" : "b")).build();
            channel.basicPublish(topic, "stock." + number, properties, bytes(number));
            channel.basicPublish(topic, "bond." + number, properties, bytes(number));
        }
        channel.waitForConfirmsOrDie(PATIENCE_SECONDS * 1000);
        long[] counts = new long[3];
        for (int number = 0; number < 3; number++) {
            counts[number] = channel.messageCount(queues.get(number));
            assertTrue(counts[number] > 0, "a queue got nothing");
        }
        assertEquals(30, counts[0] + counts[1] + counts[2]);
        channel.exchangeUnbind(headers, topic, "stock.#");
        channel.exchangeDelete(topic, true);
    }

    @Test
    void anActiveConsumerIsAloneUntilItGoes() throws Exception {
        String queue = queue(Map.of("x-single-active-consumer", true));
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        List<String> tags = new ArrayList<>();
        for (String name : List.of("first", "second")) {
            tags.add(channel.basicConsume(queue, true, (tag, delivery) -> seen.add(name), tag -> {}));
        }
        for (int number = 0; number < 4; number++) {
            channel.basicPublish("", queue, null, bytes(number));
            assertEquals("first", taken(seen));
        }
        channel.basicCancel(tags.get(0));
        channel.basicPublish("", queue, null, bytes("m"));
        assertEquals("second", taken(seen));
    }

    @Test
    void higherPrioritiesGetMessagesFirst() throws Exception {
        String queue = queue(Map.of());
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        channel.basicQos(1);
        channel.basicConsume(queue, false, Map.of("x-priority", 1), (tag, delivery) -> seen.add("low"), tag -> {});
        channel.basicConsume(queue, false, Map.of("x-priority", 10), (tag, delivery) -> seen.add("high"), tag -> {});
        channel.basicPublish("", queue, null, bytes(1));
        assertEquals("high", taken(seen));
        channel.basicPublish("", queue, null, bytes(2));
        assertEquals("low", taken(seen));
    }

    @Test
    void aConsumerIsToldThatItsQueueIsGone() throws Exception {
        String queue = queue(Map.of());
        CountDownLatch told = new CountDownLatch(1);
        channel.basicConsume(queue, true, (tag, delivery) -> {}, tag -> told.countDown());
        connection.createChannel().queueDelete(queue);
        assertTrue(told.await(PATIENCE_SECONDS, TimeUnit.SECONDS));
    }

    private interface Refused {
        void work(Channel channel) throws IOException;
    }

    private void refused(int code, boolean hard, Refused refused) throws Exception {
        try (Connection own = factory().newConnection()) {
            IOException failure = assertThrows(IOException.class, () -> refused.work(own.createChannel()));
            ShutdownSignalException signal = (ShutdownSignalException) failure.getCause();
            assertEquals(hard, signal.isHardError());
            int told = hard
                    ? ((AMQP.Connection.Close) signal.getReason()).getReplyCode()
                    : ((AMQP.Channel.Close) signal.getReason()).getReplyCode();
            assertEquals(code, told);
        } catch (com.rabbitmq.client.AlreadyClosedException closed) {
            assertTrue(hard);
        }
    }

    @Test
    void errorsHaveTheirCodes() throws Exception {
        String mine = queue(Map.of());
        refused(404, false, channel -> channel.queueDeclarePassive(fresh("none")));
        refused(405, false, channel -> channel.basicConsume(mine, (tag, delivery) -> {}, tag -> {}));
        refused(406, false, channel -> channel.exchangeDeclare("amq.direct", "fanout", true));
        refused(403, false, channel -> channel.exchangeDeclare("amq.mine", "fanout", true));
        refused(540, true, channel -> channel.basicQos(10, 1, false));
    }

    @Test
    void channelsArePublishedToSideBySide() throws Exception {
        String queue = queue(Map.of());
        List<Thread> threads = new ArrayList<>();
        BlockingQueue<Throwable> failures = new LinkedBlockingQueue<>();
        for (int thread = 0; thread < 8; thread++) {
            threads.add(new Thread(() -> {
                try (Channel own = connection.createChannel()) {
                    own.confirmSelect();
                    for (int number = 0; number < 50; number++) {
                        own.basicPublish("", queue, null, bytes(number));
                        if (number % 10 == 9) {
                            own.waitForConfirmsOrDie(PATIENCE_SECONDS * 1000);
                        }
                    }
                } catch (Exception failure) {
                    failures.add(failure);
                }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        assertNull(failures.poll());
        assertEquals(400, channel.messageCount(queue));
    }

    @Test
    void aLargeMessageAndAnEmptyOne() throws Exception {
        String queue = queue(Map.of());
        byte[] large = new byte[6 << 20];
        new Random(7).nextBytes(large);
        channel.basicPublish("", queue, null, large);
        channel.basicPublish("", queue, null, new byte[0]);
        assertArrayEquals(large, channel.basicGet(queue, true).getBody());
        assertEquals(0, channel.basicGet(queue, true).getBody().length);
    }

    @Test
    void afterACrashEverythingIsDeclaredAndConsumedAgain() throws Exception {
        String durable = fresh("durable");
        channel.queueDeclare(durable, true, false, false, Map.of("x-queue-type", "quorum"));
        String exchange = fresh("fanout");
        channel.exchangeDeclare(exchange, "fanout", false, true, null);
        String own = queue(Map.of());
        channel.queueBind(own, exchange, "");
        Set<String> seen = ConcurrentHashMap.newKeySet();
        for (String queue : List.of(durable, own)) {
            channel.basicConsume(queue, false, (tag, delivery) -> {
                seen.add(new String(delivery.getBody()));
                channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
            }, tag -> {});
        }
        CountDownLatch recovered = new CountDownLatch(1);
        ((com.rabbitmq.client.Recoverable) connection).addRecoveryListener(new com.rabbitmq.client.RecoveryListener() {
            @Override
            public void handleRecovery(com.rabbitmq.client.Recoverable recoverable) {
                recovered.countDown();
            }

            @Override
            public void handleRecoveryStarted(com.rabbitmq.client.Recoverable recoverable) {}
        });
        crash();
        assertTrue(recovered.await(PATIENCE_SECONDS, TimeUnit.SECONDS));
        channel.basicPublish("", durable, null, bytes("to the durable one"));
        channel.basicPublish(exchange, "", null, bytes("to the one that was declared again"));
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (seen.size() < 2) {
            assertTrue(System.nanoTime() < deadline, "only " + seen);
            Thread.sleep(20);
        }
        channel.queueDelete(durable);
    }
}
