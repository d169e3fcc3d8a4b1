// RabbitMQ's own Java client of its HTTP API, on Weir's management listener.

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.ShutdownSignalException;
import com.rabbitmq.http.client.Client;
import com.rabbitmq.http.client.ClientParameters;
import com.rabbitmq.http.client.GetAckMode;
import com.rabbitmq.http.client.GetEncoding;
import com.rabbitmq.http.client.HttpClientException;
import com.rabbitmq.http.client.HttpServerException;
import com.rabbitmq.http.client.domain.BindingInfo;
import com.rabbitmq.http.client.domain.ChannelInfo;
import com.rabbitmq.http.client.domain.ConnectionInfo;
import com.rabbitmq.http.client.domain.ConsumerDetails;
import com.rabbitmq.http.client.domain.DeleteQueueParameters;
import com.rabbitmq.http.client.domain.ExchangeInfo;
import com.rabbitmq.http.client.domain.InboundMessage;
import com.rabbitmq.http.client.domain.OutboundMessage;
import com.rabbitmq.http.client.domain.OverviewResponse;
import com.rabbitmq.http.client.domain.QueryParameters;
import com.rabbitmq.http.client.domain.QueueInfo;
import com.rabbitmq.http.client.domain.TopicPermissions;
import com.rabbitmq.http.client.domain.UserPermissions;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class ManagementTest {
    private static final int PATIENCE_SECONDS = 20;

    private final Client client;

    ManagementTest() throws Exception {
        String url = "http://" + System.getenv("SUITE_MANAGEMENT") + "/api/";
        client = new Client(new ClientParameters().url(url).username("guest").password("guest"));
    }

    private static String fresh(String kind) {
        return kind + "-" + UUID.randomUUID();
    }

    private static Connection connect() throws Exception {
        String[] address = System.getenv("SUITE_AMQP").split(":");
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost(address[0]);
        factory.setPort(Integer.parseInt(address[1]));
        factory.setAutomaticRecoveryEnabled(false);
        return factory.newConnection("java suite");
    }

    private ConnectionInfo mine() {
        return client.getConnections().stream()
            .filter(connection -> "java suite".equals(connection.getClientProperties().getConnectionName()))
            .findFirst()
            .orElseThrow();
    }

    @Test
    void theOverviewSaysWhatIsKnown() {
        OverviewResponse overview = client.getOverview();
        assertEquals("weir", overview.getClusterName());
        assertEquals(client.getNodes().get(0).getName(), overview.getNode());
        assertTrue(client.getNodes().get(0).isRunning());
        assertEquals(client.getQueues().size(), overview.getObjectTotals().getQueues());
        assertFalse(overview.getListeners().isEmpty());
        assertEquals("guest", client.whoAmI().getName());
        assertTrue(client.whoAmI().getTags().contains("administrator"));
        assertTrue(client.alivenessTest("/"));
        assertEquals("/", client.getVhosts().get(0).getName());
        assertEquals("weir", client.getClusterName().getName());
    }

    @Test
    void queuesAreDeclaredListedAndDeleted() {
        String name = fresh("q");
        Map<String, Object> arguments = Map.of("x-queue-type", "quorum", "x-message-ttl", 60_000);
        client.declareQueue("/", name, new QueueInfo(true, false, false, arguments));
        client.declareQueue("/", name, new QueueInfo(true, false, false, arguments));
        QueueInfo found = client.getQueue("/", name);
        assertTrue(found.isDurable());
        assertEquals(arguments, found.getArguments());
        assertEquals("quorum", found.getType());
        assertEquals(0, found.getTotalMessages());
        assertEquals("running", found.getState());
        var page = client.getQueues("/", new QueryParameters().name(name).pagination().pageSize(10).query());
        assertEquals(1, page.getFilteredCount());
        assertEquals(name, page.getItems()[0].getName());
        HttpClientException refused = assertThrows(HttpClientException.class,
            () -> client.declareQueue("/", name, new QueueInfo(true, false, false, Map.of())));
        assertEquals(400, refused.status());
        client.publish("/", "amq.default", name, new OutboundMessage().payload("one"));
        refused = assertThrows(HttpClientException.class,
            () -> client.deleteQueue("/", name, new DeleteQueueParameters(true, false)));
        assertEquals(400, refused.status());
        client.purgeQueue("/", name);
        client.deleteQueue("/", name, new DeleteQueueParameters(true, true));
        assertNull(client.getQueue("/", name));
    }

    @Test
    void exchangesAndBindingsAreMadeAndUnmade() {
        String exchange = fresh("x");
        String other = fresh("x");
        String queue = fresh("q");
        client.declareExchange("/", exchange, new ExchangeInfo("topic", true, false, false, Map.of("alternate-exchange", other)));
        client.declareExchange("/", other, new ExchangeInfo("fanout", true, false));
        client.declareQueue("/", queue, new QueueInfo(true, false, false));
        assertEquals(Map.of("alternate-exchange", other), client.getExchange("/", exchange).getArguments());
        assertTrue(client.getExchanges("/").stream().anyMatch(found -> found.getName().equals("amq.headers")));

        client.bindQueue("/", queue, exchange, "a.*", Map.of("k", "v"));
        client.bindQueue("/", queue, exchange, "b.#");
        client.bindExchange("/", exchange, other, "");
        List<BindingInfo> between = client.getQueueBindingsBetween("/", exchange, queue);
        assertEquals(List.of("a.*", "b.#"), between.stream().map(BindingInfo::getRoutingKey).sorted().toList());
        assertEquals(1, client.getExchangeBindingsBetween("/", other, exchange).size());
        assertEquals(3, client.getQueueBindings("/", queue).size());
        client.unbindExchange("/", exchange, other, "~");
        assertTrue(client.getExchangeBindingsBetween("/", other, exchange).isEmpty());

        assertTrue(client.publish("/", exchange, "a.b", new OutboundMessage().payload("routed")));
        assertFalse(client.publish("/", exchange, "c", new OutboundMessage().payload("lost")));
        assertEquals("routed", client.get("/", queue, 1, GetAckMode.ACK_REQUEUE_FALSE,
            GetEncoding.AUTO, 1_000).get(0).getPayload());

        client.deleteQueue("/", queue);
        client.deleteExchange("/", exchange);
        client.deleteExchange("/", other);
        assertNull(client.getExchange("/", exchange));
        assertTrue(client.getBindings("/").stream().noneMatch(left -> left.getDestination().equals(queue)));
    }

    @Test
    void messagesKeepTheirProperties() {
        String queue = fresh("q");
        client.declareQueue("/", queue, new QueueInfo(true, false, false));
        Map<String, Object> properties = Map.of("delivery_mode", 2, "content_type", "text/plain", "headers", Map.of("n", 5));
        client.publish("/", "amq.default", queue,
            new OutboundMessage().payload("grün").properties(properties));
        for (GetAckMode mode : List.of(GetAckMode.NACK_REQUEUE_TRUE, GetAckMode.REJECT_REQUEUE_TRUE, GetAckMode.REJECT_REQUEUE_FALSE)) {
            List<InboundMessage> got = client.get("/", queue, 5, mode, GetEncoding.AUTO, -1);
            assertEquals(1, got.size(), mode.toString());
            assertEquals("grün", got.get(0).getPayload());
            assertEquals(mode != GetAckMode.NACK_REQUEUE_TRUE, got.get(0).isRedelivered());
            assertEquals(properties, got.get(0).getProperties());
        }
        assertTrue(client.get("/", queue, 1, GetAckMode.ACK_REQUEUE_FALSE, GetEncoding.AUTO).isEmpty());
        client.deleteQueue("/", queue);
    }

    @Test
    void aConnectionIsSeenAndClosedWithAReason() throws Exception {
        String queue = fresh("q");
        client.declareQueue("/", queue, new QueueInfo(true, false, false));
        Connection connection = connect();
        CompletableFuture<ShutdownSignalException> closed = new CompletableFuture<>();
        connection.addShutdownListener(closed::complete);
        Channel channel = connection.createChannel();
        channel.basicQos(7);
        channel.confirmSelect();
        channel.basicConsume(queue, false, "the-tag", new DefaultConsumer(channel));

        ConnectionInfo mine = mine();
        assertEquals("AMQP 0-9-1", mine.getProtocol());
        assertEquals("guest", mine.getUser());
        assertEquals(1, mine.getChannels());
        assertEquals(mine.getName(), client.getConnection(mine.getName()).getName());
        ChannelInfo seen = client.getChannels(mine.getName()).get(0);
        assertEquals(1, seen.getConsumerCount());
        assertTrue(seen.usesPublisherConfirms());
        assertEquals(seen.getName(), client.getChannel(seen.getName()).getName());
        ConsumerDetails consumer = client.getConsumers("/").stream()
            .filter(each -> each.getConsumerTag().equals("the-tag")).findFirst().orElseThrow();
        assertEquals(queue, consumer.getQueueDetails().getName());
        assertEquals(7, consumer.getPrefetchCount());
        assertEquals(1, client.getQueue("/", queue).getConsumerCount());

        client.closeConnection(mine.getName(), "enough of it");
        ShutdownSignalException signal = closed.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
        var close = (com.rabbitmq.client.AMQP.Connection.Close) signal.getReason();
        assertEquals(320, close.getReplyCode());
        assertEquals("CONNECTION_FORCED - enough of it", close.getReplyText());
        client.deleteQueue("/", queue);
    }

    @Test
    void definitionsNameWhatWasDeclared() {
        String queue = fresh("q");
        client.declareQueue("/", queue, new QueueInfo(true, false, false));
        var definitions = client.getDefinitions();
        assertNotNull(definitions.getServerVersion());
        assertTrue(definitions.getQueues().stream().anyMatch(found -> found.getName().equals(queue)));
        assertEquals("guest", definitions.getUsers().get(0).getName());
        assertEquals("/", client.getPermissions("/", "guest").getVhost());
        client.deleteQueue("/", queue);
    }

    @Test
    void usersHostsAndPermissionsAreMadeAndUnmade() {
        String host = fresh("host");
        String user = fresh("user");
        client.createVhost(host, "for a check", "one", "two");
        assertEquals("for a check", client.getVhost(host).getDescription());
        client.createUser(user, "secret".toCharArray(), List.of("management"));
        assertEquals(List.of("management"), client.getUser(user).getTags());
        client.updatePermissions(host, user, new UserPermissions("^a", "^b", "^c"));
        assertEquals("^b", client.getPermissions(host, user).getWrite());
        assertEquals(1, client.getPermissionsOf(user).size());
        client.updateTopicPermissions(host, user, new TopicPermissions("amq.topic", "^a", "^b"));
        assertEquals("amq.topic", client.getTopicPermissions(host, user).get(0).getExchange());
        client.clearTopicPermissions(host, user);
        client.clearPermissions(host, user);
        assertTrue(client.getPermissionsOf(user).isEmpty());
        client.deleteUser(user);
        assertNull(client.getUser(user));
        client.deleteVhost(host);
        assertNull(client.getVhost(host));
    }

    @Test
    void whatIsNotServedIsRefused() {
        HttpServerException refused = assertThrows(HttpServerException.class, () -> client.createVhost("traced", true));
        assertEquals(501, refused.status());
        assertTrue(client.getPolicies().isEmpty());
        assertNull(client.getVhost("elsewhere"));
    }
}
