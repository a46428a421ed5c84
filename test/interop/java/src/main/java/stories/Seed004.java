package stories;

import static interop.Interop.await;
import static interop.Interop.check;
import static interop.Interop.equal;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.GetResponse;
import interop.Deaths;
import java.util.Date;
import java.util.List;
import java.util.Map;
import seed004.DeadLetterExchange;
import seed004.DeadLetterRoutingKey;

/** The older Chinese guide (seed 004): its samples, and what it says of x-death. */
final class Seed004 {
    private Seed004() {}

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

    /**
     * "如果x-death已经包含一个具有相同队列和死字的原因的条目，则其计数字段将被递增，并将其移动到数组的开头": an entry of the same
     * queue and reason is counted up and moved to the front. Its time stays that of the first death (DL-20.2).
     */
    static void headers() throws Exception {
        try (Connection connection = Client.connect()) {
            Channel channel = connection.createChannel();
            Client.declare(channel, "work", Map.of("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "wait"));
            Client.declare(channel, "wait", Map.of(
                    "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "work", "x-message-ttl", 1100));
            channel.basicPublish("", "work", new AMQP.BasicProperties.Builder().expiration("60000").build(), "letter".getBytes());
            Date first = null;
            for (long round = 1; round <= 2; round++) {
                reject(channel);
                GetResponse back = await("the message back", () -> channel.basicGet("work", false), got -> got != null);
                Map<String, Object> headers = back.getProps().getHeaders();
                equal(2, Deaths.of(headers).size(), "entries of x-death");
                Deaths.check(headers, 0, "wait", "expired", round, "", List.of("wait"));
                Deaths.check(headers, 1, "work", "rejected", round, "", List.of("work"));
                equal("60000", Deaths.of(headers).get(1).get("original-expiration").toString(), "original-expiration");
                check(back.getProps().getExpiration() == null, "expiration is still %s", back.getProps().getExpiration());
                Date time = (Date) Deaths.of(headers).get(1).get("time");
                if (first != null) {
                    equal(first, time, "time of a pair that came again");
                }
                first = time;
                channel.basicReject(back.getEnvelope().getDeliveryTag(), true);
            }
        }
    }

    private static void reject(Channel channel) throws Exception {
        GetResponse message = await("a message", () -> channel.basicGet("work", false), got -> got != null);
        channel.basicReject(message.getEnvelope().getDeliveryTag(), false);
    }
}
