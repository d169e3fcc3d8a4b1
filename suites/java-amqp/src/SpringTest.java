// Spring AMQP as applications use it: annotated listeners, retries in the process, dead letters, confirms and replies.

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.amqp.core.AcknowledgeMode;
import org.springframework.amqp.core.Binding;
import org.springframework.amqp.core.BindingBuilder;
import org.springframework.amqp.core.Declarables;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.core.TopicExchange;
import org.springframework.amqp.rabbit.annotation.EnableRabbit;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.config.RetryInterceptorBuilder;
import org.springframework.amqp.rabbit.config.SimpleRabbitListenerContainerFactory;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.connection.ConnectionFactory;
import org.springframework.amqp.rabbit.connection.CorrelationData;
import org.springframework.amqp.rabbit.core.RabbitAdmin;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.retry.RejectAndDontRequeueRecoverer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

class SpringTest {
    private static final long PATIENCE_SECONDS = 20;
    private static final String ID = UUID.randomUUID().toString().substring(0, 8);
    static final String EXCHANGE = "spring-" + ID;
    static final String WORK = "spring-work-" + ID;
    static final String DEAD = "spring-dead-" + ID;
    static final String UPPER = "spring-upper-" + ID;

    static final BlockingQueue<String> TRIES = new LinkedBlockingQueue<>();
    static final BlockingQueue<Message> DEATHS = new LinkedBlockingQueue<>();

    @Configuration
    @EnableRabbit
    static class Application {
        @Bean
        CachingConnectionFactory connectionFactory() {
            CachingConnectionFactory factory = new CachingConnectionFactory(RabbitClientTest.factory());
            factory.setPublisherConfirmType(CachingConnectionFactory.ConfirmType.CORRELATED);
            factory.setPublisherReturns(true);
            return factory;
        }

        @Bean
        RabbitAdmin admin(ConnectionFactory factory) {
            return new RabbitAdmin(factory);
        }

        @Bean
        RabbitTemplate template(ConnectionFactory factory) {
            RabbitTemplate template = new RabbitTemplate(factory);
            template.setMandatory(true);
            template.setReplyTimeout(TimeUnit.SECONDS.toMillis(PATIENCE_SECONDS));
            // Replies go to a queue of their own, as with brokers that have nothing else.
            template.setUseTemporaryReplyQueues(true);
            return template;
        }

        @Bean
        Declarables topology() {
            Queue work = QueueBuilder.durable(WORK).quorum().deadLetterExchange("").deadLetterRoutingKey(DEAD).build();
            TopicExchange exchange = new TopicExchange(EXCHANGE);
            Binding binding = BindingBuilder.bind(work).to(exchange).with("work.#");
            return new Declarables(work, exchange, binding, new Queue(DEAD, true), new Queue(UPPER, false, false, true));
        }

        @Bean
        SimpleRabbitListenerContainerFactory rabbitListenerContainerFactory(ConnectionFactory factory) {
            SimpleRabbitListenerContainerFactory containers = new SimpleRabbitListenerContainerFactory();
            containers.setConnectionFactory(factory);
            containers.setConcurrentConsumers(2);
            containers.setPrefetchCount(5);
            containers.setAcknowledgeMode(AcknowledgeMode.AUTO);
            containers.setRecoveryInterval(200L);
            containers.setAdviceChain(RetryInterceptorBuilder.stateless()
                    .maxRetries(2)
                    .backOffOptions(20, 2, 100)
                    .recoverer(new RejectAndDontRequeueRecoverer())
                    .build());
            return containers;
        }

        @RabbitListener(queues = "#{T(SpringTest).work()}")
        void work(String body) {
            TRIES.add(body);
            if (body.startsWith("bad")) {
                throw new IllegalArgumentException(body);
            }
        }

        @RabbitListener(queues = "#{T(SpringTest).dead()}")
        void dead(Message message) {
            DEATHS.add(message);
        }

        @RabbitListener(queues = "#{T(SpringTest).upper()}")
        String upper(String body) {
            return body.toUpperCase();
        }
    }

    public static String work() {
        return WORK;
    }

    public static String dead() {
        return DEAD;
    }

    public static String upper() {
        return UPPER;
    }

    private AnnotationConfigApplicationContext application;
    private RabbitTemplate template;

    @BeforeEach
    void start() {
        application = new AnnotationConfigApplicationContext(Application.class);
        template = application.getBean(RabbitTemplate.class);
    }

    @AfterEach
    void stop() {
        RabbitAdmin admin = application.getBean(RabbitAdmin.class);
        admin.deleteQueue(WORK);
        admin.deleteQueue(DEAD);
        admin.deleteExchange(EXCHANGE);
        application.close();
    }

    @Test
    void listenersWorkAnswerRetryAndLetDieAlsoAfterACrash() throws Exception {
        CorrelationData confirmed = new CorrelationData();
        template.convertAndSend(EXCHANGE, "work.new", "bad", confirmed);
        assertTrue(confirmed.getFuture().get(PATIENCE_SECONDS, TimeUnit.SECONDS).ack());
        Message death = DEATHS.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
        assertNotNull(death, "nothing died");
        assertEquals(3, TRIES.size(), "one try and two more");
        assertEquals("rejected", death.getMessageProperties().getXDeathHeader().get(0).get("reason"));

        CorrelationData unroutable = new CorrelationData();
        template.convertAndSend(EXCHANGE, "elsewhere", "lost", unroutable);
        assertTrue(unroutable.getFuture().get(PATIENCE_SECONDS, TimeUnit.SECONDS).ack());
        assertEquals(312, unroutable.getReturned().getReplyCode());

        assertEquals("QUIET", template.convertSendAndReceive("", UPPER, "quiet"));

        TRIES.clear();
        RabbitClientTest.crash();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (!TRIES.contains("after")) {
            assertTrue(System.nanoTime() < deadline, "the listener does not come back");
            try {
                template.convertAndSend(EXCHANGE, "work.new", "after");
            } catch (org.springframework.amqp.AmqpException notYet) {
                // The connection is opened anew with the next try.
            }
            Thread.sleep(50);
        }
    }
}
