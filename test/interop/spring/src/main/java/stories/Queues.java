package stories;

import static interop.Interop.await;
import static interop.Interop.equal;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.springframework.amqp.core.AmqpAdmin;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.QueueInformation;
import org.springframework.amqp.rabbit.core.RabbitTemplate;

/** What the stories do with queues again and again. */
final class Queues {
    private Queues() {}

    /** Takes the next message of a queue, acknowledged, as soon as there is one. */
    static Message take(RabbitTemplate template, String queue) throws Exception {
        return await("a message in " + queue, () -> template.receive(queue), message -> message != null);
    }

    /** Waits until a queue has that many ready messages. */
    static void depth(AmqpAdmin admin, String queue, long messages) throws Exception {
        await(messages + " messages in " + queue, () -> {
            QueueInformation information = admin.getQueueInfo(queue);
            return information == null ? -1 : information.getMessageCount();
        }, count -> count == messages);
    }

    static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    static Map<String, Object> headers(Message message) {
        return message.getMessageProperties().getHeaders();
    }

    /** Checks through which exchange and with which key a message came. */
    static void cameBy(String exchange, String key, Message message) {
        equal(exchange, message.getMessageProperties().getReceivedExchange(), "exchange");
        equal(key, message.getMessageProperties().getReceivedRoutingKey(), "routing key");
    }
}
