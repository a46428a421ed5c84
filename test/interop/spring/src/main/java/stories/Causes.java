package stories;

import static interop.Interop.await;
import static interop.Interop.equal;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import interop.Interop;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.aopalliance.intercept.MethodInterceptor;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.config.ContainerCustomizer;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.listener.SimpleMessageListenerContainer;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;

/** Whatever a listener throws is told to the broker before the message is rejected, and stands in the dead letter. */
final class Causes {
    private Causes() {}

    static void play() throws Exception {
        try (ConfigurableApplicationContext context = App.start(
                List.of("spring.rabbitmq.listener.simple.default-requeue-rejected=false"), WorkQueues.class, Telling.class, Reject.Listener.class)) {
            context.getBean(RabbitTemplate.class).convertAndSend("work", "order");
            String letters = "/office/letters/" + URLEncoder.encode(Interop.vhost(), StandardCharsets.UTF_8) + "/work.dlq";
            Matcher id = Pattern.compile("\"id\":\"([^\"]+)\"").matcher(await(
                    "a letter in work.dlq", () -> Interop.api("GET", letters, null), answer -> answer.contains("\"id\":")));
            equal(true, id.find(), "an id is there");
            String letter = Interop.api("GET", letters + "/" + id.group(1), null);
            for (String part : List.of(
                    "\"class\":\"java.lang.IllegalStateException\"", "\"error\":\"no stock for order\"", "\"from\":\"settle\"", "at stories.WorkQueues$Failing.fail")) {
                equal(true, letter.contains(part), part + " is in " + letter);
            }
        }
    }

    static class Telling {
        @Bean
        ContainerCustomizer<SimpleMessageListenerContainer> tellWhy() {
            MethodInterceptor tell = call -> {
                try {
                    return call.proceed();
                } catch (Exception failed) {
                    tell((Channel) call.getArguments()[0], (Message) call.getArguments()[1], failed);
                    throw failed;
                }
            };
            return container -> container.setAdviceChain(tell);
        }

        private static void tell(Channel channel, Message message, Exception failed) throws Exception {
            Throwable cause = failed.getCause() == null ? failed : failed.getCause(); // Spring has wrapped it
            StringWriter stack = new StringWriter();
            cause.printStackTrace(new PrintWriter(stack));
            Map<String, Object> why = Map.of(
                    "delivery-tag", message.getMessageProperties().getDeliveryTag(),
                    "error-class", cause.getClass().getName(),
                    "error", String.valueOf(cause.getMessage()));
            channel.basicPublish("bartleby.settle", "", new AMQP.BasicProperties.Builder().headers(why).build(),
                    stack.toString().getBytes(StandardCharsets.UTF_8));
        }
    }
}
