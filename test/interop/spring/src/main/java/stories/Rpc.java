package stories;

import static interop.Interop.equal;

import java.util.List;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;

/** RabbitTemplate asks and a listener answers: by direct reply-to, and by a temporary queue. */
final class Rpc {
    private Rpc() {}

    static void play() {
        try (ConfigurableApplicationContext context = App.start(List.of("spring.rabbitmq.template.reply-timeout=10s"), Answering.class)) {
            RabbitTemplate template = context.getBean(RabbitTemplate.class);
            for (boolean temporary : new boolean[] {false, true}) {
                template.setUseTemporaryReplyQueues(temporary);
                for (int i = 0; i < 3; i++) {
                    equal("answer to " + i, template.convertSendAndReceive("questions", String.valueOf(i)), "reply");
                }
            }
        }
    }

    static class Answering {
        @Bean
        Queue questions() {
            return new Queue("questions");
        }

        @RabbitListener(queues = "questions")
        String answer(String question) {
            return "answer to " + question;
        }
    }
}
