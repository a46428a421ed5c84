package stories;

import static interop.Interop.await;
import static interop.Interop.equal;

import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;
import interop.Interop;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * The broker is killed: what was confirmed is there, and the client's automatic recovery brings back the connection,
 * its channels, its server-named queue with its binding, and its consumers.
 */
final class Reconnect {
    private static final int MESSAGES = 20;
    private static final int PREFETCH = 5;

    private Reconnect() {}

    /**
     * A quorum queue keeps what was confirmed although it was declared a moment ago. RabbitMQ 4.3.6 killed within seconds
     * of the declaration starts the queue anew, and empty ("name_not_registered" in its log).
     */
    static void quorum() throws Exception {
        try (Connection connection = Client.connect()) {
            Channel channel = connection.createChannel();
            Client.declare(channel, "quorum", Map.of("x-queue-type", "quorum"));
            channel.confirmSelect();
            for (int i = 0; i < MESSAGES; i++) {
                Client.publish(channel, "", "quorum", "order " + i);
            }
            channel.waitForConfirmsOrDie(10_000);
        }
        Interop.restart();
        try (Connection connection = Client.connect()) {
            Channel channel = connection.createChannel();
            for (int i = 0; i < MESSAGES; i++) {
                Client.body("order " + i, Client.take(channel, "quorum"));
            }
        }
    }

    static void play() throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(Interop.uri());
        factory.setNetworkRecoveryInterval(200);
        try (Connection connection = factory.newConnection()) {
            CountDownLatch recovered = new CountDownLatch(1);
            ((Recoverable) connection).addRecoveryListener(new RecoveryListener() {
                @Override
                public void handleRecovery(Recoverable recoverable) {
                    recovered.countDown();
                }

                @Override
                public void handleRecoveryStarted(Recoverable recoverable) {}
            });
            Channel channel = connection.createChannel();
            channel.exchangeDeclare("news", BuiltinExchangeType.FANOUT, true);
            Client.declare(channel, "orders", null);
            channel.confirmSelect();
            for (int i = 0; i < MESSAGES; i++) {
                channel.basicPublish("", "orders", MessageProperties.PERSISTENT_BASIC, ("order " + i).getBytes(StandardCharsets.UTF_8));
            }
            channel.waitForConfirmsOrDie(10_000);

            Channel worker = connection.createChannel();
            worker.basicQos(PREFETCH);
            Set<String> taken = ConcurrentHashMap.newKeySet();
            AtomicInteger held = new AtomicInteger();
            worker.basicConsume("orders", false, (tag, delivery) -> {
                if (held.incrementAndGet() > PREFETCH) { // what came before the kill stays unacknowledged
                    taken.add(new String(delivery.getBody(), StandardCharsets.UTF_8));
                    worker.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
                }
            }, tag -> {});
            Set<String> news = ConcurrentHashMap.newKeySet();
            Channel listener = connection.createChannel();
            String own = listener.queueDeclare().getQueue();
            listener.queueBind(own, "news", "");
            listener.basicConsume(own, true, (tag, delivery) -> news.add(new String(delivery.getBody(), StandardCharsets.UTF_8)), tag -> {});

            await("the prefetch", () -> held.get(), size -> size == PREFETCH);
            Interop.restart();
            Interop.check(recovered.await(30, TimeUnit.SECONDS), "the client has not recovered its connection in 30 s");

            await("all messages at the recovered consumer", () -> taken.size(), size -> size == MESSAGES);
            Client.depth(channel, "orders", 0);
            channel.basicPublish("news", "", null, "again".getBytes(StandardCharsets.UTF_8));
            channel.waitForConfirmsOrDie(10_000);
            await("a message in the recovered queue without a name", () -> news.contains("again"));
            equal(1, news.size(), "news");
        }
    }
}
