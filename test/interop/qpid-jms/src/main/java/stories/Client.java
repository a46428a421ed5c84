package stories;

import static interop.Interop.await;

import interop.Interop;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.qpid.jms.JmsConnectionFactory;

/** A connection with a session, and what the stories do with them. JMS cannot declare: the management API does. */
final class Client implements AutoCloseable {
    /** Qpid JMS's own acknowledge mode: each message by itself. */
    private static final int INDIVIDUAL_ACKNOWLEDGE = 101;

    /** Values of the property JMS_AMQP_ACK_TYPE, which says the outcome that acknowledge() sends. */
    static final int REJECTED = 2;
    static final int RELEASED = 3;
    static final int MODIFIED_FAILED = 4;
    static final int MODIFIED_FAILED_UNDELIVERABLE = 5;

    private static final long PATIENCE = 20_000; // ms for whatever must come about
    private static final Pattern READY = Pattern.compile("\"messages_ready\":\\s*(\\d+)");

    private final Connection connection;
    final Session session;

    private Client(String uri) throws JMSException {
        connection = new JmsConnectionFactory("guest", "guest", uri).createConnection();
        connection.start();
        session = connection.createSession(false, INDIVIDUAL_ACKNOWLEDGE);
    }

    /** Connects; consumers have so much credit. The virtual host is named as the host. */
    static Client connect(int prefetch) throws JMSException {
        return new Client(address() + "&jms.prefetchPolicy.all=" + prefetch);
    }

    /** Connects so that the client connects again by itself. */
    static Client connectForGood(int prefetch) throws JMSException {
        return new Client("failover:(" + address() + ")?failover.initialReconnectDelay=100&failover.reconnectDelay=200&jms.prefetchPolicy.all=" + prefetch);
    }

    private static String address() {
        return "amqp://" + Interop.host() + ":" + Interop.port() + "?amqp.saslMechanisms=PLAIN&amqp.vhost=vhost:" + Interop.vhost();
    }

    @Override
    public void close() throws JMSException {
        connection.close();
    }

    static void declare(String queue, String arguments) throws Exception {
        Interop.api("PUT", "/queues/" + vhost() + "/" + queue, "{\"durable\":true,\"arguments\":" + arguments + "}");
    }

    /** Declares a direct exchange and binds the queue to it. */
    static void bind(String queue, String exchange, String key) throws Exception {
        Interop.api("PUT", "/exchanges/" + vhost() + "/" + exchange, "{\"type\":\"direct\",\"durable\":true}");
        Interop.api("POST", "/bindings/" + vhost() + "/e/" + exchange + "/q/" + queue, "{\"routing_key\":\"" + key + "\"}");
    }

    /** Waits until so many messages are ready in a queue: RabbitMQ counts every 5 s. */
    static void ready(long want, String queue) throws Exception {
        await(want + " messages in " + queue, () -> {
            Matcher counted = READY.matcher(Interop.api("GET", "/queues/" + vhost() + "/" + queue, null));
            return counted.find() ? Long.parseLong(counted.group(1)) : -1L;
        }, count -> count == want);
    }

    private static String vhost() {
        return URLEncoder.encode(Interop.vhost(), StandardCharsets.UTF_8);
    }

    MessageProducer producer(String address) throws JMSException {
        return session.createProducer(session.createQueue(address));
    }

    /** Sends a persistent message, and throws if its outcome is not accepted. */
    void publish(String address, String... bodies) throws JMSException {
        try (MessageProducer producer = producer(address)) {
            for (String body : bodies) {
                producer.send(session.createTextMessage(body));
            }
        }
    }

    MessageConsumer consumer(String queue) throws JMSException {
        return session.createConsumer(session.createQueue("/queues/" + queue));
    }

    static Message take(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(PATIENCE);
        Interop.check(message != null, "no message came in %d ms", PATIENCE);
        return message;
    }

    /** Takes the next message of a queue. */
    Message takeOne(String queue) throws JMSException {
        try (MessageConsumer consumer = consumer(queue)) {
            Message message = take(consumer);
            message.acknowledge();
            return message;
        }
    }

    static void settle(Message message, int outcome) throws JMSException {
        message.setIntProperty("JMS_AMQP_ACK_TYPE", outcome);
        message.acknowledge();
    }

    static String body(Message message) throws JMSException {
        return message.getBody(String.class);
    }

    static List<String> numbers(int from, int to) {
        List<String> bodies = new ArrayList<>();
        for (int i = from; i < to; i++) {
            bodies.add(Integer.toString(i));
        }
        return bodies;
    }

    void publishNumbers(String address, int n) throws JMSException {
        publish(address, numbers(0, n).toArray(String[]::new));
    }
}
