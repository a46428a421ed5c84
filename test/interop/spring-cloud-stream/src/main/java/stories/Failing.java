package stories;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import org.springframework.context.annotation.Bean;
import org.springframework.messaging.Message;

/** The function of an application whose consumer always fails; it keeps what it was given. */
class Failing {
    final List<Message<String>> attempts = new CopyOnWriteArrayList<>();

    @Bean
    Consumer<Message<String>> handle() {
        return message -> {
            attempts.add(message);
            throw new IllegalStateException("no stock for " + message.getPayload());
        };
    }
}
