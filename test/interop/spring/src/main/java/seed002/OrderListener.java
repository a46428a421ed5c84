package seed002;

import interop.Deaths;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.springframework.amqp.AmqpRejectAndDontRequeueException;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.stereotype.Component;

/**
 * The consumer of section 5: it rejects an order that fails and parks it after three rounds. The text tests "the x-death
 * count"; after the wait the first entry is that of the retry queue, so the count is that of orders.queue and "rejected"
 * (DL-19.2).
 */
@Component
public class OrderListener {
    /** How often an order may come back. */
    static final long MAX_RETRIES = 3;

    private final RabbitTemplate template;
    public final List<String> handled = new CopyOnWriteArrayList<>();
    public volatile boolean deployIsBad = true;

    OrderListener(RabbitTemplate template) {
        this.template = template;
    }

    @RabbitListener(queues = "orders.queue")
    public void handle(Message order) {
        if (!deployIsBad) {
            handled.add(new String(order.getBody()));
            return;
        }
        if (Deaths.count(order.getMessageProperties().getHeaders(), "orders.queue", "rejected") >= MAX_RETRIES) {
            template.send("", "orders.parking-lot.queue", order);
            return;
        }
        throw new AmqpRejectAndDontRequeueException("the dependency does not answer");
    }
}
