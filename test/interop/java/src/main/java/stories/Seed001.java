package stories;

import static interop.Interop.api;
import static interop.Interop.await;
import static interop.Interop.check;
import static interop.Interop.equal;
import static interop.Interop.vhost;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.ShutdownSignalException;
import interop.Deaths;
import interop.Interop;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import seed001.DeadLetterExchange;
import seed001.DeadLetterRoutingKey;

/** RabbitMQ 4.0's guide to dead letter exchanges (seed 001): its samples, and each of its statements that a client can see. */
final class Seed001 {
    private Seed001() {}

    static void arguments() throws Exception {
        Program.run(DeadLetterExchange.class);
        Snippet.check("myqueue", "myqueue");
    }

    static void routingKey() throws Exception {
        Program.run(DeadLetterRoutingKey.class);
        Snippet.check("myqueue", "some-routing-key");
    }

    /**
     * "messages on it are dead-lettered with all their original routing keys. This includes routing keys added by the CC
     * and BCC headers". The guide also says that CC is removed where the queue sets a routing key; brokers keep it since
     * 3.13 (DL-20.1), and so does the check.
     */
    static void ownKeys() throws Exception {
        try (Connection connection = Client.connect()) {
            Channel channel = connection.createChannel();
            channel.exchangeDeclare("dlx", BuiltinExchangeType.DIRECT);
            Client.declare(channel, "own", Map.of("x-dead-letter-exchange", "dlx"));
            Client.declare(channel, "replaced", Map.of("x-dead-letter-exchange", "dlx", "x-dead-letter-routing-key", "bar"));
            for (String key : List.of("cc", "bcc", "bar", "own", "replaced")) {
                Client.declare(channel, "dead." + key, null);
                channel.queueBind("dead." + key, "dlx", key);
            }
            for (String queue : List.of("own", "replaced")) {
                AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder()
                        .headers(Map.of("CC", List.of("cc"), "BCC", List.of("bcc")))
                        .build();
                channel.basicPublish("", queue, properties, queue.getBytes());
                GetResponse message = await(queue, () -> channel.basicGet(queue, false), got -> got != null);
                check(!message.getProps().getHeaders().containsKey("BCC"), "BCC is shown to a consumer");
                channel.basicReject(message.getEnvelope().getDeliveryTag(), false);
            }
            for (String key : List.of("own", "cc", "bcc")) {
                GetResponse dead = Client.take(channel, "dead." + key);
                Client.cameBy("dlx", "own", dead);
                Deaths.check(dead.getProps().getHeaders(), 0, "own", "rejected", 1, "", List.of("own", "cc"));
                check(!dead.getProps().getHeaders().containsKey("BCC"), "BCC is in a dead letter");
            }
            GetResponse dead = Client.take(channel, "dead.bar");
            Client.cameBy("dlx", "bar", dead);
            check(dead.getProps().getHeaders().containsKey("CC"), "CC was removed: %s", dead.getProps().getHeaders());
            for (String key : List.of("cc", "bcc", "bar", "replaced")) {
                Client.depth(channel, "dead." + key, 0);
            }
        }
    }

    /** The table of x-death, its order, what is counted, and the six headers of the first and the last death. */
    static void headers() throws Exception {
        try (Connection connection = Client.connect()) {
            Channel channel = connection.createChannel();
            Client.declare(channel, "first", Map.of("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "second"));
            Client.declare(channel, "second", Map.of("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "first"));

            channel.basicPublish("", "first", new AMQP.BasicProperties.Builder().expiration("50").build(), "letter".getBytes());
            // first -> second -> first -> second -> first: it expires where it came in, and is rejected after that, as its TTL is gone.
            for (int round = 0; round < 3; round++) {
                reject(channel, round % 2 == 0 ? "second" : "first");
            }
            GetResponse letter = Client.take(channel, "first");
            Map<String, Object> headers = letter.getProps().getHeaders();
            check(letter.getProps().getExpiration() == null, "a dead letter still has expiration %s", letter.getProps().getExpiration());
            equal(3, Deaths.of(headers).size(), "entries of x-death");
            Deaths.check(headers, 0, "second", "rejected", 2, "", List.of("second"));
            Deaths.check(headers, 1, "first", "rejected", 1, "", List.of("first"));
            Deaths.check(headers, 2, "first", "expired", 1, "", List.of("first"));
            equal("50", Deaths.of(headers).get(2).get("original-expiration").toString(), "original-expiration");
            check(!Deaths.of(headers).get(0).containsKey("original-expiration"), "original-expiration where no TTL was: %s", headers);
            Deaths.first(headers, "first", "expired", "");
            Deaths.last(headers, "second", "rejected", "");
        }
    }

    /** "drop the message if there was no rejection in the entire cycle" */
    static void cycle() throws Exception {
        try (Connection connection = Client.connect()) {
            Channel channel = connection.createChannel();
            // "when a queue dead-letters messages to the default exchange without specifying a dead-letter routing key"
            Client.declare(channel, "circle", Map.of("x-dead-letter-exchange", "", "x-message-ttl", 500));
            Client.publish(channel, "", "circle", "round");
            reject(channel, "circle");
            GetResponse again = await("the rejected message", () -> channel.basicGet("circle", false), got -> got != null);
            Deaths.check(again.getProps().getHeaders(), 0, "circle", "rejected", 1, "", List.of("circle"));
            channel.basicReject(again.getEnvelope().getDeliveryTag(), true);
            Client.depth(channel, "circle", 1);
            Client.depth(channel, "circle", 0); // from its expiry to its arrival nobody rejected it
        }
    }

    /** "If an entire queue expires, the messages in the queue are not dead-lettered." */
    static void queueExpires() throws Exception {
        try (Connection connection = Client.connect()) {
            Channel channel = connection.createChannel();
            Client.declare(channel, "dead", null);
            Client.declare(channel, "short", Map.of(
                    "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dead", "x-expires", 300));
            Client.publish(channel, "", "short", "gone with its queue");
            await("the queue to expire", () -> !api("GET", "/queues/" + vhost(), null).contains("\"name\":\"short\""));
            Client.depth(channel, "dead", 0);
        }
    }

    /** "the user must have read permissions on that queue and write permissions on the dead letter exchange" */
    static void permissions() throws Exception {
        String user = vhost(); // as unique as the vhost
        api("PUT", "/users/" + user, "{\"password\":\"secret\",\"tags\":\"\"}");
        try {
            refused(user, "", ".*", "read of the queue");
            refused(user, ".*", "myqueue", "write to the exchange");
            grant(user, ".*", "my-dlx");
            try (Connection connection = login(user)) {
                Client.declare(connection.createChannel(), "myqueue", Map.of("x-dead-letter-exchange", "my-dlx"));
            }
        } finally {
            api("DELETE", "/users/" + user, null);
        }
    }

    private static void grant(String user, String read, String write) throws Exception {
        api("PUT", "/permissions/" + vhost() + "/" + user,
                String.format("{\"configure\":\".*\",\"write\":\"%s\",\"read\":\"%s\"}", write, read));
    }

    private static Connection login(String user) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(Interop.uri());
        factory.setUsername(user);
        factory.setPassword("secret");
        return factory.newConnection();
    }

    private static void refused(String user, String read, String write, String missing) throws Exception {
        grant(user, read, write);
        try (Connection connection = login(user)) {
            Client.declare(connection.createChannel(), "myqueue", Map.of("x-dead-letter-exchange", "my-dlx"));
        } catch (IOException failure) {
            check(failure.getCause() instanceof ShutdownSignalException, "it failed with %s", failure);
            AMQP.Channel.Close close = (AMQP.Channel.Close) ((ShutdownSignalException) failure.getCause()).getReason();
            equal(AMQP.ACCESS_REFUSED, close.getReplyCode(), "reply code");
            return;
        }
        check(false, "a user without %s may declare the queue", missing);
    }

    /** The fourth reason, delivery_limit, and at-least-once: both are of quorum queues. */
    static void quorum() throws Exception {
        try (Connection connection = Client.connect()) {
            Channel channel = connection.createChannel();
            Client.declare(channel, "limited", Map.of(
                    "x-queue-type", "quorum", "x-delivery-limit", 1,
                    "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dead",
                    "x-dead-letter-strategy", "at-least-once", "x-overflow", "reject-publish"));
            Client.declare(channel, "dead", Map.of("x-queue-type", "quorum"));
            channel.confirmSelect();
            Client.publish(channel, "", "limited", "letter");
            channel.waitForConfirmsOrDie(10_000);
            for (int returned = 0; returned < 2; returned++) {
                GetResponse message = await("delivery", () -> channel.basicGet("limited", false), got -> got != null);
                channel.basicReject(message.getEnvelope().getDeliveryTag(), true);
            }
            GetResponse dead = Client.take(channel, "dead");
            Deaths.check(dead.getProps().getHeaders(), 0, "limited", "delivery_limit", 1, "", List.of("limited"));
        }
    }

    private static void reject(Channel channel, String queue) throws Exception {
        GetResponse message = await("a message in " + queue, () -> channel.basicGet(queue, false), got -> got != null);
        channel.basicReject(message.getEnvelope().getDeliveryTag(), false);
    }
}
