package interop;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.function.Predicate;

/**
 * What a story knows of the broker it plays against (the environment that the driver gives it), how it waits, and how
 * it fails. Nothing here knows a client library: the clients on the JVM share it.
 */
public final class Interop {
    /** How long {@link #await} waits. A cell has 60 s, and RabbitMQ takes some 10 s to start again. */
    private static final Duration DEADLINE = Duration.ofSeconds(30);

    private static final Duration POLL = Duration.ofMillis(20);

    private Interop() {}

    /** A story is a piece of code that throws when the broker did not do what it must. */
    @FunctionalInterface
    public interface Story {
        void play() throws Exception;
    }

    /** Plays the story that is named by the first argument and ends the process: 0 is passed, 1 failed, 2 unknown. */
    public static void main(String[] args, Map<String, Story> stories) {
        Story story = args.length == 1 ? stories.get(args[0]) : null;
        if (story == null) {
            System.err.println("usage: run STORY, one of " + stories.keySet());
            System.exit(2);
        }
        try {
            story.play();
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.err.println(args[0] + " failed: " + failure.getMessage());
            System.exit(1);
        }
        System.exit(0); // threads of clients that a story did not close must not keep it alive
    }

    public static String uri() {
        return environment("AMQP_URI");
    }

    public static String host() {
        return environment("AMQP_HOST");
    }

    public static int port() {
        return Integer.parseInt(environment("AMQP_PORT"));
    }

    public static String vhost() {
        return environment("AMQP_VHOST");
    }

    private static String environment(String name) {
        String value = System.getenv(name);
        if (value == null || value.isEmpty()) {
            throw new IllegalStateException(name + " is not set: stories are run by \"make interop\"");
        }
        return value;
    }

    /** Kills the broker and returns when it serves again. */
    public static void restart() throws Exception {
        Process process =
                new ProcessBuilder("sh", "-c", environment("INTEROP_RESTART")).inheritIO().start();
        equal(0, process.waitFor(), "exit code of INTEROP_RESTART");
    }

    /** Sends a request to the management API as guest and returns the body of the answer; other than 2xx is a failure. */
    public static String api(String method, String path, String body) throws Exception {
        HttpResponse<String> answer = HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1) // RabbitMQ now and then closes what asks for an upgrade
                .build()
                .send(
                        HttpRequest.newBuilder(URI.create(environment("HTTP_URI") + "/api" + path))
                                .timeout(Duration.ofSeconds(10))
                                .header("Content-Type", "application/json")
                                .header("Authorization", "Basic " + Base64.getEncoder()
                                        .encodeToString("guest:guest".getBytes(StandardCharsets.UTF_8)))
                                .method(method, body == null
                                        ? HttpRequest.BodyPublishers.noBody()
                                        : HttpRequest.BodyPublishers.ofString(body))
                                .build(),
                        HttpResponse.BodyHandlers.ofString());
        check(answer.statusCode() / 100 == 2, "%s %s is answered with %d: %s", method, path, answer.statusCode(), answer.body());
        return answer.body();
    }

    /** Fails with the formatted message unless the condition holds. */
    public static void check(boolean holds, String message, Object... arguments) {
        if (!holds) {
            throw new AssertionError(String.format(message, arguments));
        }
    }

    /** Fails unless both are equal, naming what was compared. */
    public static void equal(Object want, Object got, String what) {
        check(Objects.equals(want, got), "%s is %s, not %s", what, got, want);
    }

    /** Asks until the answer satisfies the condition and returns it; the last answer is in the failure. */
    public static <T> T await(String what, Callable<T> ask, Predicate<T> satisfied) throws Exception {
        long end = System.nanoTime() + DEADLINE.toNanos();
        while (true) {
            T answer = ask.call();
            if (satisfied.test(answer)) {
                return answer;
            }
            check(System.nanoTime() < end, "waited %d s for %s, the last answer is %s", DEADLINE.toSeconds(), what, answer);
            Thread.sleep(POLL.toMillis());
        }
    }

    /** Waits until the condition holds. */
    public static void await(String what, Callable<Boolean> holds) throws Exception {
        await(what, holds, answer -> answer);
    }
}
