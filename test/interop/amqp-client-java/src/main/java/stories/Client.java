package stories;

import static interop.Interop.equal;

import com.rabbitmq.client.amqp.BackOffDelayPolicy;
import com.rabbitmq.client.amqp.Connection;
import com.rabbitmq.client.amqp.Consumer;
import com.rabbitmq.client.amqp.Environment;
import com.rabbitmq.client.amqp.Management;
import com.rabbitmq.client.amqp.Message;
import com.rabbitmq.client.amqp.Publisher;
import com.rabbitmq.client.amqp.Resource;
import com.rabbitmq.client.amqp.impl.AmqpEnvironmentBuilder;
import interop.Interop;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A connection, and what the stories do with it again and again. */
final class Client implements AutoCloseable {
    /** Seconds for whatever must come about. */
    static final int PATIENCE = 20;

    private final Environment environment = new AmqpEnvironmentBuilder().build();
    final Connection connection;
    final Management management;

    Client(Resource.StateListener... listeners) {
        connection = environment
                .connectionBuilder()
                .host(Interop.host())
                .port(Interop.port())
                .virtualHost(Interop.vhost())
                .username("guest")
                .password("guest")
                .recovery()
                .backOffDelayPolicy(BackOffDelayPolicy.fixed(Duration.ofMillis(200)))
                .connectionBuilder()
                .listeners(listeners)
                .build();
        management = connection.management();
    }

    @Override
    public void close() {
        environment.close();
    }

    /** Declares a direct exchange and binds the queue to it. */
    void bind(String queue, String exchange, String key) {
        management.exchange(exchange).type(Management.ExchangeType.DIRECT).declare();
        management.binding().sourceExchange(exchange).key(key).destinationQueue(queue).bind();
    }

    /** Checks how many messages are ready in a queue. */
    void ready(long want, String queue, String what) {
        equal(want, management.queueInfo(queue).messageCount(), what);
    }

    /** Publishes a message and returns what the broker said of it. */
    static Publisher.Status outcome(Publisher publisher, Message message) throws Exception {
        CompletableFuture<Publisher.Status> status = new CompletableFuture<>();
        publisher.publish(message, context -> status.complete(context.status()));
        return status.get(PATIENCE, TimeUnit.SECONDS);
    }

    static void publish(Publisher publisher, String body) throws Exception {
        equal(Publisher.Status.ACCEPTED, outcome(publisher, publisher.message(body.getBytes(StandardCharsets.UTF_8))), "outcome of " + body);
    }

    void publishNumbers(String queue, int from, int to) throws Exception {
        try (Publisher publisher = connection.publisherBuilder().queue(queue).build()) {
            for (String body : numbers(from, to)) {
                publish(publisher, body);
            }
        }
    }

    static List<String> numbers(int from, int to) {
        List<String> bodies = new ArrayList<>();
        for (int i = from; i < to; i++) {
            bodies.add(Integer.toString(i));
        }
        return bodies;
    }

    /** A message and the way to settle it. */
    record Delivery(Consumer.Context context, Message message) {
        String body() {
            return new String(message.body(), StandardCharsets.UTF_8);
        }
    }

    /** A consumer that settles nothing, and what has come to it. */
    static final class Inbox implements AutoCloseable {
        private final BlockingQueue<Delivery> arrived = new LinkedBlockingQueue<>();
        final Consumer consumer;

        Inbox(Client client, String queue, int credit) {
            consumer = client.connection
                    .consumerBuilder()
                    .queue(queue)
                    .initialCredits(credit)
                    .messageHandler((context, message) -> arrived.add(new Delivery(context, message)))
                    .build();
        }

        Delivery take() throws Exception {
            Delivery delivery = arrived.poll(PATIENCE, TimeUnit.SECONDS);
            Interop.check(delivery != null, "no message came in %d s", PATIENCE);
            return delivery;
        }

        List<Delivery> take(int n) throws Exception {
            List<Delivery> deliveries = new ArrayList<>();
            while (deliveries.size() < n) {
                deliveries.add(take());
            }
            return deliveries;
        }

        int waiting() {
            return arrived.size();
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    /** Takes the next message of a queue. */
    Message takeOne(String queue) throws Exception {
        try (Inbox inbox = new Inbox(this, queue, 1)) {
            Delivery delivery = inbox.take();
            delivery.context().accept();
            return delivery.message();
        }
    }
}
