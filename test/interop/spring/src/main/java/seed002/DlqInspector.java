package seed002;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.stereotype.Component;

/** Section 3: the listener that reads x-death, as printed; what it read is kept for the story. */
@Component
public class DlqInspector {
    public final List<Message> inspected = new CopyOnWriteArrayList<>();
    public final List<Long> counts = new CopyOnWriteArrayList<>();

    @SuppressWarnings("unchecked")
    @RabbitListener(queues = "orders.dlq")
    public void inspect(Message failed) {
        Map<String, Object> death = (Map<String, Object>)
            ((List<?>) failed.getMessageProperties().getHeader("x-death")).get(0);
        long count = (Long) death.get("count");
        // count tells you how many times this message has been dead-lettered
        counts.add(count);
        inspected.add(failed);
    }
}
