// A publisher and a consumer for what RabbitMQ's PerfTest does not do; `bench/run` starts them.

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import org.HdrHistogram.Histogram;

/**
 * A publisher and a consumer over RabbitMQ's Java client, for what PerfTest does not do: every confirm's latency,
 * routing keys that change, delays, and a check of each message's number.
 *
 * <p>A message begins with its number and with the time at which it is due, eight bytes each: the time at which it was
 * given to the client, and its delay on top. All processes of a machine share the clock, CLOCK_MONOTONIC. At its end
 * each prints one line of JSON; a message that was refused, returned, double or not expected is counted there.
 */
public final class QueueLoad {
    private static final int HEAD_BYTES = 16;
    private static final long LATENCY_MOST_NS = TimeUnit.HOURS.toNanos(1);
    private static final int DIGITS = 3;
    private static final double NS = 1e9;

    private QueueLoad() {}

    /** Settings of the form {@code name=value}; each has to be known to whoever asks. */
    private static final class Settings {
        private final Map<String, String> values = new HashMap<>();

        Settings(List<String> words) {
            for (String word : words) {
                int at = word.indexOf('=');
                if (at < 0) {
                    throw new IllegalArgumentException("not of the form name=value: " + word);
                }
                values.put(word.substring(0, at), word.substring(at + 1));
            }
        }

        String text(String name, String otherwise) {
            String found = values.remove(name);
            if (found == null && otherwise == null) {
                throw new IllegalArgumentException("missing: " + name);
            }
            return found == null ? otherwise : found;
        }

        long number(String name, long otherwise) {
            return Long.parseLong(text(name, Long.toString(otherwise)));
        }

        void checkAllKnown() {
            if (!values.isEmpty()) {
                throw new IllegalArgumentException("unknown: " + values.keySet());
            }
        }
    }

    /** What was measured, by one thread at a time. */
    private static final class Taken {
        final Histogram latencies = new Histogram(LATENCY_MOST_NS, DIGITS);
        long records;
        long failed;
        long doubled;
        long early;
        long first;
        long last;

        synchronized void note(long latency, long now) {
            records++;
            first = first == 0 ? now : first;
            last = now;
            latencies.recordValue(Math.min(Math.max(latency, 0), LATENCY_MOST_NS));
        }

        /** The result; {@code began} is when the first was given, or nothing where only what came is known. */
        synchronized String told(long began) {
            double seconds = Math.max(last - (began == 0 ? first : began), 1) / NS;
            return String.format(
                    Locale.ROOT,
                    "{\"records\": %d, \"failed\": %d, \"double\": %d, \"early\": %d, \"seconds\": %.6f, "
                            + "\"p50_ms\": %.4f, \"p99_ms\": %.4f, \"p999_ms\": %.4f, \"max_ms\": %.4f}",
                    records,
                    failed,
                    doubled,
                    early,
                    seconds,
                    latencies.getValueAtPercentile(50) / 1e6,
                    latencies.getValueAtPercentile(99) / 1e6,
                    latencies.getValueAtPercentile(99.9) / 1e6,
                    latencies.getMaxValue() / 1e6);
        }
    }

    public static void main(String[] words) throws Exception {
        Settings settings = new Settings(List.of(words).subList(1, words.length));
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(settings.text("uri", null));
        factory.setAutomaticRecoveryEnabled(false);
        try (Connection connection = factory.newConnection()) {
            Channel channel = connection.createChannel();
            if (words[0].equals("publish")) {
                publish(channel, settings);
            } else if (words[0].equals("consume")) {
                consume(channel, settings);
            } else {
                throw new IllegalArgumentException("publish or consume, not " + words[0]);
            }
        }
    }

    private static void publish(Channel channel, Settings settings) throws Exception {
        String exchange = settings.text("exchange", "");
        String key = settings.text("key", null);
        long keys = settings.number("keys", 1);
        long count = settings.number("count", 0);
        long from = settings.number("from", 0);
        int size = (int) Math.max(settings.number("size", HEAD_BYTES), HEAD_BYTES);
        int window = (int) settings.number("unconfirmed", 1);
        long leftOut = settings.number("left-out", 0);
        long delayMost = settings.number("delay-ms-most", -1);
        long seed = settings.number("seed", 1);
        long stalled = settings.number("stalled-s", 30);
        settings.checkAllKnown();

        String[] names = new String[(int) keys];
        for (int number = 0; number < names.length; number++) {
            names[number] = key.replace("#N", Integer.toString(number));
        }
        SplittableRandom random = new SplittableRandom(seed);
        AMQP.BasicProperties persistent = new AMQP.BasicProperties.Builder().deliveryMode(2).build();
        Confirms confirms = new Confirms(window, leftOut);
        channel.confirmSelect();
        channel.addConfirmListener(
                (number, multiple) -> confirms.done(number, multiple, true),
                (number, multiple) -> confirms.done(number, multiple, false));
        channel.addReturnListener(returned -> confirms.returned());
        long began = 0;
        for (long number = 0; number < count; number++) {
            if (!confirms.room.tryAcquire(stalled, TimeUnit.SECONDS)) {
                break;
            }
            AMQP.BasicProperties properties = persistent;
            long delay = 0;
            if (delayMost >= 0) {
                delay = random.nextLong(delayMost + 1);
                properties = persistent.builder().headers(Map.of("x-delay", (int) delay)).build();
            }
            long now = System.nanoTime();
            began = number == leftOut ? now : began;
            byte[] body = new byte[size];
            long due = now + TimeUnit.MILLISECONDS.toNanos(delay);
            ByteBuffer.wrap(body).putLong(from + number).putLong(due);
            confirms.given(number + 1, now);
            String name = names[(int) (number % names.length)];
            // Delayed messages are routed when they are due, too late to be returned.
            channel.basicPublish(exchange, name, delayMost < 0, properties, body);
        }
        boolean all = confirms.room.tryAcquire(window, stalled, TimeUnit.SECONDS);
        if (!all) {
            System.err.println("not everything was confirmed");
            confirms.missing(window - confirms.room.availablePermits());
        }
        System.out.println(confirms.told(began, leftOut));
    }

    /** When each message that is under way was given, by its sequence number. */
    private static final class Confirms {
        final Semaphore room;
        private final AtomicLongArray givenAt;
        private final AtomicLong returned = new AtomicLong();
        private final Taken taken = new Taken();
        private final long leftOut;
        private long lowest = 1;

        Confirms(int window, long leftOut) {
            room = new Semaphore(window);
            // Confirms may come in any order: those behind the oldest take up to a window more.
            givenAt = new AtomicLongArray(Integer.highestOneBit(Math.max(window, 1)) * 4);
            this.leftOut = leftOut;
        }

        private int slot(long number) {
            return (int) (number & (givenAt.length() - 1));
        }

        void given(long number, long now) throws InterruptedException {
            // The slot is that of a message long confirmed, unless one is left behind for ever.
            for (int tries = 0; givenAt.get(slot(number)) != 0; tries++) {
                if (tries > 30_000) {
                    throw new IllegalStateException("a message was left unconfirmed while later ones were confirmed");
                }
                Thread.sleep(1);
            }
            givenAt.set(slot(number), now);
        }

        void returned() {
            returned.incrementAndGet();
        }

        void missing(long count) {
            synchronized (taken) {
                taken.failed += count;
            }
        }

        void done(long number, boolean multiple, boolean accepted) {
            long now = System.nanoTime();
            if (multiple) {
                for (; lowest <= number; lowest++) {
                    one(lowest, now, accepted, false);
                }
            } else {
                one(number, now, accepted, true);
                while (lowest < number && givenAt.get(slot(lowest)) == 0) {
                    lowest++;
                }
            }
        }

        private void one(long number, long now, boolean accepted, boolean named) {
            long given = givenAt.getAndSet(slot(number), 0);
            synchronized (taken) {
                if (given == 0) {
                    // One of several may have been confirmed by itself before.
                    taken.doubled += named ? 1 : 0;
                    return;
                }
                if (accepted && number > leftOut) {
                    taken.note(now - given, now);
                } else if (!accepted) {
                    taken.failed++;
                }
            }
            room.release();
        }

        String told(long began, long leftOut) {
            synchronized (taken) {
                taken.failed += returned.get();
                // Those that count in no percentile were confirmed all the same.
                taken.records += leftOut;
                return taken.told(began);
            }
        }
    }

    private static void consume(Channel channel, Settings settings) throws Exception {
        String[] queues = settings.text("queues", null).split(",");
        long count = settings.number("count", 0);
        long from = settings.number("from", 0);
        // Numbers that may come in one queue.
        int numbers = (int) settings.number("numbers", count);
        int prefetch = (int) settings.number("prefetch", 500);
        long earlyNs = TimeUnit.MICROSECONDS.toNanos(settings.number("early-us", 0));
        long stalled = settings.number("stalled-s", 30);
        settings.checkAllKnown();

        Taken taken = new Taken();
        AtomicLong came = new AtomicLong();
        CountDownLatch ended = new CountDownLatch(1);
        channel.basicQos(prefetch);
        for (String queue : queues) {
            BitSet seen = new BitSet(numbers);
            channel.basicConsume(queue, false, new DefaultConsumer(channel) {
                @Override
                public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body)
                        throws IOException {
                    if (came.get() >= count) {
                        return;
                    }
                    long now = System.nanoTime();
                    ByteBuffer head = ByteBuffer.wrap(body);
                    long number = head.getLong() - from;
                    long late = now - head.getLong();
                    synchronized (taken) {
                        if (number < 0 || number >= numbers) {
                            taken.failed++;
                        } else if (seen.get((int) number)) {
                            taken.doubled++;
                        } else {
                            seen.set((int) number);
                        }
                        taken.early += late < -earlyNs ? 1 : 0;
                        taken.note(late, now);
                    }
                    channel.basicAck(envelope.getDeliveryTag(), false);
                    if (came.incrementAndGet() == count) {
                        ended.countDown();
                    }
                }

                @Override
                public void handleCancel(String tag) {
                    System.err.println("the broker cancelled the consumer");
                    ended.countDown();
                }
            });
        }
        System.out.println("consuming");
        // Until everything came, or nothing more does.
        for (long before = -1; ended.getCount() > 0 && before < came.get(); ) {
            before = came.get();
            if (ended.await(stalled, TimeUnit.SECONDS)) {
                break;
            }
        }
        // Behind the acknowledgements, so that they have been carried out when this ends.
        channel.basicQos(1);
        System.out.println(taken.told(0));
    }
}
