package stories;

import interop.Interop;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.springframework.boot.Banner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;

/**
 * The application that every story starts. Its one function is "handle": destination "orders", group "work", hence the
 * exchange orders, the queue orders.work, and with autoBindDlq the exchange DLX and the queue orders.work.dlq.
 */
@EnableAutoConfiguration
public class App {
    private static final String CONSUMER = "spring.cloud.stream.rabbit.bindings.handle-in-0.consumer.";

    /** Starts it. The first list is of properties of the Rabbit consumer, the second of any, each as "name=value". */
    static ConfigurableApplicationContext start(List<String> consumer, List<String> properties, Class<?>... sources) {
        Map<String, Object> defaults = new HashMap<>();
        defaults.put("spring.rabbitmq.addresses", Interop.uri());
        defaults.put("logging.level.root", "error"); // failing consumers are what is played, each would print its stack
        defaults.put("logging.level.org.springframework.integration.handler.LoggingHandler", "off");
        defaults.put("spring.jmx.enabled", "false");
        defaults.put("spring.cloud.function.definition", "handle");
        defaults.put("spring.cloud.stream.bindings.handle-in-0.destination", "orders");
        defaults.put("spring.cloud.stream.bindings.handle-in-0.group", "work");
        defaults.put("spring.cloud.stream.bindings.handle-in-0.consumer.back-off-initial-interval", "10"); // ms
        consumer.forEach(property -> put(defaults, CONSUMER, property));
        properties.forEach(property -> put(defaults, "", property));
        List<Class<?>> all = new ArrayList<>(List.of(sources));
        all.add(0, App.class);
        SpringApplication application = new SpringApplication(all.toArray(Class<?>[]::new));
        application.setWebApplicationType(WebApplicationType.NONE);
        application.setBannerMode(Banner.Mode.OFF);
        application.setDefaultProperties(defaults);
        return application.run();
    }

    private static void put(Map<String, Object> properties, String prefix, String property) {
        String[] pair = property.split("=", 2);
        properties.put(prefix + pair[0], pair[1]);
    }
}
