package interop;

import static interop.Interop.equal;

import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * Reads and checks the headers of a dead letter (DL-7.1 to DL-7.5). Strings are compared as text: the Java client gives
 * LongString where Spring gives String.
 */
public final class Deaths {
    private Deaths() {}

    /** The entries of x-death, the most recent first; none if the message never died. */
    @SuppressWarnings("unchecked")
    public static List<Map<String, Object>> of(Map<String, Object> headers) {
        Object entries = headers == null ? null : headers.get("x-death");
        return entries == null ? List.of() : (List<Map<String, Object>>) entries;
    }

    /** How often the message died in that queue for that reason: entry 0 alone does not tell (DL-19.2). */
    public static long count(Map<String, Object> headers, String queue, String reason) {
        return of(headers).stream()
                .filter(entry -> text(entry, "queue").equals(queue) && text(entry, "reason").equals(reason))
                .mapToLong(entry -> (Long) entry.get("count"))
                .findFirst()
                .orElse(0);
    }

    /** Checks the entry at an index of x-death, each field with its type. */
    public static void check(
            Map<String, Object> headers, int index, String queue, String reason, long count, String exchange, List<String> keys) {
        Interop.check(of(headers).size() > index, "x-death has %d entries: %s", of(headers).size(), headers);
        Map<String, Object> entry = of(headers).get(index);
        String name = "x-death[" + index + "].";
        equal(queue, text(entry, "queue"), name + "queue");
        equal(reason, text(entry, "reason"), name + "reason");
        equal(count, entry.get("count"), name + "count");
        equal(exchange, text(entry, "exchange"), name + "exchange");
        equal(keys, ((List<?>) entry.get("routing-keys")).stream().map(Object::toString).collect(Collectors.toList()), name + "routing-keys");
        Interop.check(entry.get("time") instanceof Date, "%stime is no timestamp: %s", name, entry.get("time"));
        long age = System.currentTimeMillis() - ((Date) entry.get("time")).getTime();
        Interop.check(age > -2_000 && age < 60_000, "%stime is %d ms ago", name, age);
    }

    /** Checks x-first-death-queue, -reason and -exchange. */
    public static void first(Map<String, Object> headers, String queue, String reason, String exchange) {
        summary(headers, "x-first-death-", queue, reason, exchange);
    }

    /** Checks x-last-death-queue, -reason and -exchange. */
    public static void last(Map<String, Object> headers, String queue, String reason, String exchange) {
        summary(headers, "x-last-death-", queue, reason, exchange);
    }

    private static void summary(Map<String, Object> headers, String prefix, String queue, String reason, String exchange) {
        equal(queue, text(headers, prefix + "queue"), prefix + "queue");
        equal(reason, text(headers, prefix + "reason"), prefix + "reason");
        equal(exchange, text(headers, prefix + "exchange"), prefix + "exchange");
    }

    private static String text(Map<String, Object> table, String key) {
        Interop.check(table.get(key) != null, "%s is missing in %s", key, table);
        return table.get(key).toString();
    }
}
