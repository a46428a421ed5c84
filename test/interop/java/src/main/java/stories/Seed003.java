package stories;

import static interop.Interop.api;
import static interop.Interop.await;
import static interop.Interop.check;
import static interop.Interop.equal;
import static interop.Interop.vhost;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.GetResponse;
import interop.Deaths;
import java.util.Date;
import java.util.List;
import java.util.Map;
import seed003.DLConsumer;
import seed003.DLProducer;
import seed003.DeadLetterExchange;
import seed003.DeadLetterRoutingKey;
import seed003.MessageTTLConsumer;
import seed003.MessageTTLProducer;
import seed003.NormalConsumer;
import seed003.QueueLengthLimitConsumer;
import seed003.QueueLengthLimitProducer;

/** The Chinese guide (seed 003): its programs as a reader runs them, in one terminal each, and its table of x-death. */
final class Seed003 {
    private Seed003() {}

    static void arguments() throws Exception {
        Program.run(DeadLetterExchange.class);
        Snippet.check("myqueue", "myqueue");
        try (Connection connection = Client.connect()) {
            Channel channel = connection.createChannel();
            channel.queueDelete("myqueue"); // it is declared anew with other arguments
            channel.queueDelete("dead");
        }
        Program.run(DeadLetterRoutingKey.class);
        Snippet.check("myqueue", "some-routing-key");
    }

    /** 消息被拒绝: a message is rejected. */
    static void rejected() throws Exception {
        try (Program producer = Program.start(DLProducer.class);
                Program normal = started(producer, NormalConsumer.class, 3)) {
            declared("dl.queue.test");
            bound("normal.queue.test", "normal.exchange.test");
            try (Program dead = Program.start(DLConsumer.class, 3)) {
                consumed("normal.queue.test");
                producer.type("one", "死信");
                normal.prints(" [x] channel reject 'one'\n [x] channel reject '死信'\n");
                dead.prints(" [x] channel Received DL message 'one'\n [x] channel Received DL message '死信'\n");
                shows("normal.queue.test", "dl.exchange.test", "dl.routing.key");
                producer.type("q");
                producer.ends("> > > ");

                // What the cancel callbacks print: the queues are deleted under their consumers.
                try (Connection connection = Client.connect()) {
                    Channel channel = connection.createChannel();
                    consumed("dl.queue.test");
                    channel.queueDelete("normal.queue.test");
                    channel.queueDelete("dl.queue.test");
                }
                cancelled(normal);
                cancelled(dead);
            }
        }
    }

    /** 消息过期: a message expires, after the 5 s that are printed. */
    static void expired() throws Exception {
        try (Program producer = Program.start(MessageTTLProducer.class)) {
            producer.prints("> ");
            shows("msg.ttl.queue.test", "msg.ttl.dl.exchange.test", "msg.ttl.dl.routing.key");
            try (Program consumer = Program.start(MessageTTLConsumer.class, 2)) {
                consumed("msg.ttl.dl.queue.test");
                long began = System.nanoTime();
                producer.type("one", "two", "Q");
                producer.ends("> > > ");
                consumer.ends(" [x] dlChannel Received 'one'\n [x] dlChannel Received 'two'\n");
                long took = (System.nanoTime() - began) / 1_000_000;
                check(took >= 5_000, "a message expired after %d ms", took);
            }
        }
    }

    /** 队列达到最大长度: beyond five messages the oldest goes ("默认丢弃最早的消息"). */
    static void maxLength() throws Exception {
        try (Program producer = Program.start(QueueLengthLimitProducer.class)) {
            producer.prints("> ");
            shows("length.limit.queue.test", "length.limit.dl.exchange.test", "length.limit.dl.routing.key");
            try (Program consumer = Program.start(QueueLengthLimitConsumer.class, 3)) {
                consumed("length.limit.dl.queue.test");
                producer.type("1", "2", "3", "4", "5", "6", "7", "8", "q");
                producer.ends("> > > > > > > > > ");
                consumer.ends(" [x] dlChannel Received '1'\n [x] dlChannel Received '2'\n [x] dlChannel Received '3'\n");
                try (Connection connection = Client.connect()) {
                    Client.depth(connection.createChannel(), "length.limit.queue.test", 5);
                }
            }
        }
    }

    /**
     * The table of x-death for the three reasons. The guide has "time" as the moment of the death in milliseconds; it is
     * that of the first death for this pair of queue and reason, in seconds (DL-20.2), and so is the check.
     */
    static void headers() throws Exception {
        try (Connection connection = Client.connect()) {
            Channel channel = connection.createChannel();
            Client.declare(channel, "dead", null);
            Client.declare(channel, "work", Map.of(
                    "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dead", "x-max-length", 1));
            AMQP.BasicProperties brief = new AMQP.BasicProperties.Builder().expiration("1").build();

            channel.basicPublish("", "work", brief, "expires".getBytes());
            Deaths.check(dead(channel, "expires"), 0, "work", "expired", 1, "", List.of("work"));
            Client.publish(channel, "", "work", "pushed out");
            Client.publish(channel, "", "work", "rejected");
            Deaths.check(dead(channel, "pushed out"), 0, "work", "maxlen", 1, "", List.of("work"));
            GetResponse message = await("a message", () -> channel.basicGet("work", false), got -> got != null);
            channel.basicNack(message.getEnvelope().getDeliveryTag(), false, false);
            Map<String, Object> headers = dead(channel, "rejected");
            Deaths.check(headers, 0, "work", "rejected", 1, "", List.of("work"));
            equal(0L, ((Date) Deaths.of(headers).get(0).get("time")).getTime() % 1000, "milliseconds of time");
        }
    }

    private static Map<String, Object> dead(Channel channel, String text) throws Exception {
        GetResponse message = Client.take(channel, "dead");
        Client.body(text, message);
        return message.getProps().getHeaders();
    }

    /** Starts a consumer once the producer waits for input: it declares the exchange that the consumer binds to. */
    private static Program started(Program producer, Class<?> consumer, int lines) throws Exception {
        producer.prints("> ");
        return Program.start(consumer, lines);
    }

    private static void cancelled(Program consumer) throws Exception {
        String lines = consumer.printed().lines().limit(2).reduce("", (all, line) -> all + line + "\n");
        consumer.printsLike("(?s)\\Q" + lines + "\\Echannel cancel, consumerTag: amq\\.ctag-\\S+\n");
        consumer.ends(consumer.printed());
    }

    private static void declared(String queue) throws Exception {
        await(queue, () -> api("GET", "/queues/" + vhost(), null).contains("\"name\":\"" + queue + "\""));
    }

    private static void bound(String queue, String exchange) throws Exception {
        await("a binding of " + queue, () -> api("GET", "/exchanges/" + vhost() + "/" + exchange + "/bindings/source", null)
                .contains("\"destination\":\"" + queue + "\""));
    }

    private static void consumed(String queue) throws Exception {
        try (Connection connection = Client.connect()) {
            Channel channel = connection.createChannel();
            await("a consumer of " + queue, () -> channel.consumerCount(queue) == 1);
        }
    }

    /** What the page of the queue shows: the exchange (DLX) and the key (DLK). */
    private static void shows(String queue, String exchange, String key) throws Exception {
        String shown = api("GET", "/queues/" + vhost() + "/" + queue, null);
        check(shown.contains("\"x-dead-letter-exchange\":\"" + exchange + "\""), "the exchange is not shown: %s", shown);
        check(shown.contains("\"x-dead-letter-routing-key\":\"" + key + "\""), "the routing key is not shown: %s", shown);
    }
}
