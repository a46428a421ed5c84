package stories;

import static interop.Interop.await;
import static interop.Interop.equal;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * A program of a seed as a reader runs it: a process of its own, with what is typed into it and what it prints. Errors
 * it prints are part of what it prints. Closing it kills it if it still runs, so that a failed story leaves none behind.
 */
final class Program implements AutoCloseable {
    private final Process process;
    private final StringBuffer printed = new StringBuffer();
    private final Thread reader; // owns the copying of what is printed, ends with the process

    private Program(Process process) {
        this.process = process;
        reader = new Thread(this::read);
        reader.setDaemon(true);
        reader.start();
    }

    static Program start(Class<?> main, Object... arguments) throws IOException {
        List<String> command = new ArrayList<>(List.of(
                System.getProperty("java.home") + "/bin/java",
                "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                "-cp", System.getProperty("java.class.path"), main.getName()));
        for (Object argument : arguments) {
            command.add(argument.toString());
        }
        return new Program(new ProcessBuilder(command).redirectErrorStream(true).start());
    }

    /** Runs a program that needs no input until it ends, and checks that it printed nothing. */
    static void run(Class<?> main) throws Exception {
        try (Program program = start(main)) {
            program.ends("");
        }
    }

    private void read() {
        byte[] buffer = new byte[4096];
        try (InputStream from = process.getInputStream()) {
            for (int n = from.read(buffer); n >= 0; n = from.read(buffer)) {
                printed.append(new String(buffer, 0, n, StandardCharsets.UTF_8));
            }
        } catch (IOException closed) {
            printed.append(closed.getMessage());
        }
    }

    /** Types lines, each ended by a return. */
    void type(String... lines) throws IOException {
        OutputStream to = process.getOutputStream();
        for (String line : lines) {
            to.write((line + "\n").getBytes(StandardCharsets.UTF_8));
        }
        to.flush();
    }

    /** Waits until the program has printed exactly this so far. */
    void prints(String text) throws Exception {
        await("the program to print " + text, printed::toString, text::equals);
    }

    /** Waits until the program has printed something that matches the whole regular expression. */
    void printsLike(String expression) throws Exception {
        await("the program to print " + expression, printed::toString, text -> text.matches(expression));
    }

    /** Waits for the end of the program: exit code 0, and what it printed is all it printed. */
    void ends(String text) throws Exception {
        await("the program to end", () -> process.waitFor(20, TimeUnit.MILLISECONDS));
        reader.join();
        equal(text, printed.toString(), "what the program printed");
        equal(0, process.exitValue(), "exit code of the program");
    }

    /** What it has printed so far. */
    String printed() {
        return printed.toString();
    }

    @Override
    public void close() {
        process.destroyForcibly();
    }
}
