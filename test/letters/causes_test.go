package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/core/letter"
)

// texts is how many texts there are of a shape.
const texts = 50

// chance makes ids as programs write them. What it makes depends on the name of the shape alone.
type chance struct{ *rand.Rand }

func chanceOf(name string) chance {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return chance{rand.New(rand.NewPCG(h.Sum64(), 1))}
}

const (
	upper   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	lower   = "abcdefghijklmnopqrstuvwxyz"
	decimal = "0123456789"
	base36  = decimal + lower
	base62  = base36 + upper
	nano    = base62 + "_-"
	// crockford has the letters of a ULID, kube those of the names that Kubernetes makes.
	crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	kube      = "bcdfghjklmnpqrstvwxz2456789"
	base58    = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
)

// of is n characters of an alphabet.
func (c chance) of(alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[c.IntN(len(alphabet))]
	}
	return string(b)
}

// num is a number of 1 to most digits.
func (c chance) num(most int) string {
	n := 1
	for range most {
		n *= 10
	}
	for range c.IntN(most) {
		n /= 10
	}
	return strconv.Itoa(c.IntN(n))
}

func (c chance) hex(n int) string { return hex.EncodeToString(c.bytes(n)) }

func (c chance) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(c.Uint32())
	}
	return b
}

func (c chance) uuid() string {
	h := c.hex(16)
	return h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-a" + h[17:20] + "-" + h[20:]
}

func (c chance) one(list ...string) string { return list[c.IntN(len(list))] }

func (c chance) time() time.Time {
	return time.Unix(1_700_000_000+c.Int64N(90_000_000), c.Int64N(1e9)).UTC()
}

func (c chance) ipv4() string { return netip.AddrFrom4([4]byte(c.bytes(4))).String() }

func (c chance) ipv6() string {
	b := [16]byte(c.bytes(16))
	b[0], b[1] = 0x20, 0x01
	clear(b[4 : 4+2*c.IntN(5)])
	return netip.AddrFrom16(b).String()
}

func (c chance) duration() time.Duration {
	return time.Duration(c.Int64N(int64(4*time.Hour))) / time.Duration([]int{1, 1e3, 1e6}[c.IntN(3)])
}

func (c chance) domain() string {
	return c.one("example.com", "mail.example.org", "shop.de", "a-b.co.uk", "web.net")
}

// shape is texts of one cause, which differ in an id.
type shape struct {
	name string
	text func(c chance) string
}

var shapes = []shape{
	// Numbers.
	{"number", func(c chance) string { return "order " + c.num(9) + " not found" }},
	{"number with #", func(c chance) string { return "invoice #" + c.num(7) + " is closed" }},
	{"negative number", func(c chance) string {
		return "balance is " + strconv.Itoa(c.IntN(2000)-1000) + ", which is below zero"
	}},
	{"decimal number", func(c chance) string {
		return "weight " + strconv.FormatFloat(c.Float64()*float64(c.IntN(1000)), 'f', 1+c.IntN(3), 64) + " is too much"
	}},
	{"number with exponent", func(c chance) string { return fmt.Sprintf("value %.3e is out of range", c.Float64()*1e12) }},
	{"number with separators", func(c chance) string {
		return fmt.Sprintf("sum %d,%03d.%02d differs", 1+c.IntN(99), c.IntN(1000), c.IntN(100))
	}},
	{"count and limit", func(c chance) string { return "batch has " + c.num(5) + " items, at most " + c.num(4) + " are allowed" }},
	{"list of numbers", func(c chance) string {
		return "orders " + strings.Join(slices.Collect(func(yield func(string) bool) {
			for range 2 + c.IntN(5) {
				if !yield(c.num(6)) {
					return
				}
			}
		}), ", ") + " are locked"
	}},
	{"percent", func(c chance) string { return "disk is " + c.num(2) + "% full" }},
	{"number at the beginning", func(c chance) string { return c.of(decimal[1:], 6) + ": customer is blocked" }},
	// Numbers of articles, orders, customers.
	{"sku, digits first", func(c chance) string { return "sku " + c.of(decimal, 4) + "-" + c.of(upper, 2) + " is not in stock" }},
	{"sku, letters first", func(c chance) string { return "article " + c.of(upper, 2) + "-" + c.of(decimal, 4) + " is unknown" }},
	{"sku in three parts", func(c chance) string {
		return "no price for " + c.of(upper, 3) + "-" + c.of(decimal, 2) + c.of(upper, 2) + "-" + c.of(upper, 1)
	}},
	{"order number", func(c chance) string { return "ORD-2026-" + c.of(decimal, 6) + " was cancelled" }},
	{"letters and digits together", func(c chance) string { return "part " + c.of(upper, 2) + c.of(decimal, 5) + " is missing" }},
	{"iban", func(c chance) string {
		return "account " + c.one("DE", "FR", "NL") + c.of(decimal, 20) + " does not exist"
	}},
	{"ean", func(c chance) string { return "no product with EAN " + c.of(decimal, 13) }},
	{"record locator", func(c chance) string { return "booking " + c.of(upper+decimal, 6) + " has expired" }},
	{"masked card", func(c chance) string { return "card ****" + c.of(decimal, 4) + " was declined" }},
	// Random ids.
	{"uuid", func(c chance) string { return "no customer " + c.uuid() }},
	{"uuid in capitals and braces", func(c chance) string { return "object {" + strings.ToUpper(c.uuid()) + "} is not registered" }},
	{"uuid without dashes", func(c chance) string { return "session " + strings.ReplaceAll(c.uuid(), "-", "") + " is closed" }},
	{"uuid behind a prefix", func(c chance) string { return "lock order-" + c.uuid() + " is held" }},
	{"ulid", func(c chance) string { return "event 01" + c.of(crockford, 24) + " was handled before" }},
	{"nanoid", func(c chance) string { return "document " + c.of(nano, 21) + " is gone" }},
	{"short nanoid", func(c chance) string { return "share link id=" + c.of(nano, 10) + " is gone" }},
	{"ksuid", func(c chance) string { return "no such job " + c.of(base62, 27) }},
	{"mongo object id", func(c chance) string { return "no document with _id ObjectId('" + c.hex(12) + "')" }},
	{"snowflake", func(c chance) string { return "message " + c.of(decimal[1:], 18) + " has no channel" }},
	{"stripe customer", func(c chance) string { return "No such customer: 'cus_" + c.of(base62, 14) + "'" }},
	{"stripe customer without quotes", func(c chance) string { return "No such customer: cus_" + c.of(base62, 14) }},
	{"stripe charge", func(c chance) string { return "charge ch_" + c.of(base62, 24) + " has already been refunded" }},
	{"payment intent with secret", func(c chance) string {
		return "pi_" + c.of(base62, 24) + "_secret_" + c.of(base62, 25) + " was used before"
	}},
	{"key of a constraint", func(c chance) string {
		return `duplicate key value violates unique constraint "orders_pkey" Key (id)=(` + c.of(base62, 8) + ") already exists."
	}},
	{"key of two columns", func(c chance) string {
		return "Key (tenant, name)=(" + c.of(lower, 5) + ", " + c.of(lower, 3+c.IntN(6)) + `) is not present in table "tenants".`
	}},
	{"short random id", func(c chance) string { return "token=" + c.of(base62, 8) + " is invalid" }},
	{"short random id in a sentence", func(c chance) string { return "coupon " + c.of(base62, 8) + " was used before" }},
	{"random id of small letters", func(c chance) string { return "upload id: " + c.of(base36, 8) + " has no parts" }},
	{"random id of letters alone", func(c chance) string { return "session key=" + c.of(lower, 12) + " is unknown" }},
	{"base58", func(c chance) string { return "block Qm" + c.of(base58, 44) + " not found" }},
	// Hashes and encoded bytes.
	{"short commit", func(c chance) string { return "commit " + c.hex(4)[:7] + " is not on the branch" }},
	{"md5", func(c chance) string { return "checksum " + c.hex(16) + " does not match" }},
	{"sha256", func(c chance) string { return "digest sha256:" + c.hex(32) + " not found" }},
	{"hex with 0x", func(c chance) string { return "segfault at 0x" + c.hex(6) + " in libc" }},
	{"base64", func(c chance) string {
		return "cannot decode " + base64.StdEncoding.EncodeToString(c.bytes(18+c.IntN(3)))
	}},
	{"base64 in quotes", func(c chance) string {
		return `bad cursor "` + base64.StdEncoding.EncodeToString(c.bytes(24+c.IntN(30))) + `"`
	}},
	{"base64 for urls", func(c chance) string { return "invalid state " + base64.RawURLEncoding.EncodeToString(c.bytes(32)) }},
	{"json web token", func(c chance) string {
		return "token eyJ" + base64.RawURLEncoding.EncodeToString(c.bytes(24)) + "." + base64.RawURLEncoding.EncodeToString(c.bytes(60)) + "." + base64.RawURLEncoding.EncodeToString(c.bytes(32)) + " is not valid yet"
	}},
	{"trace parent", func(c chance) string { return "upstream failed, traceparent=00-" + c.hex(16) + "-" + c.hex(8) + "-01" }},
	{"etag", func(c chance) string { return `precondition failed: etag W/"` + c.hex(5) + "-" + c.hex(4) + `"` }},
	// Machines, processes, memory.
	{"pod", func(c chance) string {
		return "pod checkout-" + c.of("bcdf2456789", 6) + "-" + c.of(kube, 5) + " was evicted"
	}},
	{"pod of a long name", func(c chance) string {
		return "no answer from order-service-" + c.of("bcdf2456789", 9) + "-" + c.of(kube, 5) + ".shop.svc"
	}},
	{"stateful pod", func(c chance) string { return "kafka-" + c.num(2) + " is not the leader" }},
	{"container", func(c chance) string { return "container " + c.hex(6) + " was killed" }},
	{"host of a cloud", func(c chance) string {
		return "ip-" + strings.ReplaceAll(c.ipv4(), ".", "-") + ".eu-west-1.compute.internal did not answer"
	}},
	{"instance", func(c chance) string { return "instance i-0" + c.hex(8) + " is not running" }},
	{"pointer", func(c chance) string { return "nil map in struct at 0xc000" + c.hex(3) }},
	{"identity of a java object", func(c chance) string {
		return "com.shop.Order@" + strconv.FormatInt(c.Int64N(1<<31), 16) + " is not managed"
	}},
	{"identity of a python object", func(c chance) string { return "<shop.Order object at 0x7f" + c.hex(5) + "> is not JSON serializable" }},
	{"thread of a pool", func(c chance) string { return "pool-" + c.num(2) + "-thread-" + c.num(3) + " was interrupted" }},
	{"thread in brackets", func(c chance) string { return "[http-nio-8080-exec-" + c.num(2) + "] request timed out" }},
	{"listener container", func(c chance) string {
		return "org.springframework.amqp.rabbit.RabbitListenerEndpointContainer#" + c.num(1) + "-" + c.num(2) + " stopped"
	}},
	{"process id", func(c chance) string { return "worker (pid " + c.num(5) + ") died" }},
	{"file and line", func(c chance) string { return "panic in orders.go:" + c.num(4) + ": index out of range" }},
	{"line and column", func(c chance) string { return "Unexpected token at line " + c.num(3) + ", column " + c.num(3) }},
	{"partition and offset", func(c chance) string { return "cannot read orders-" + c.num(2) + "@" + c.num(9) }},
	{"delivery tag", func(c chance) string { return "unknown delivery tag " + c.num(8) + " on channel " + c.num(3) }},
	// Paths, addresses, URLs.
	{"temporary directory", func(c chance) string { return "open /tmp/upload-" + c.of(base36, 6) + "/: no such file or directory" }},
	{"temporary file", func(c chance) string { return "cannot write /var/tmp/tmp." + c.of(base62, 10) }},
	{"directory of random letters", func(c chance) string { return "stat /data/" + c.of(lower, 10) + "/index: permission denied" }},
	{"file with a date", func(c chance) string { return "cannot parse /in/orders-" + c.time().Format("20060102-150405") + ".csv" }},
	{"windows path", func(c chance) string { return `Access to C:\jobs\` + c.of(base36, 8) + `\in.xml is denied` }},
	{"object in a bucket", func(c chance) string { return "no object s3://shop-files/" + c.hex(1) + "/" + c.uuid() + ".pdf" }},
	{"path of a request", func(c chance) string { return "GET /orders/" + c.num(7) + "/items failed" }},
	{"query of a url", func(c chance) string {
		return "timeout of https://api.example.com/v1/search?q=" + c.of(lower, 1+c.IntN(9)) + "&page=" + c.num(2) + "&token=" + c.of(base62, 12)
	}},
	{"url with an id", func(c chance) string {
		return `Get "https://api.example.com/customers/` + c.of(base62, 10) + `/cards": context deadline exceeded`
	}},
	{"url with a port", func(c chance) string { return "http://" + c.ipv4() + ":" + c.num(4) + "/health is down" }},
	{"ipv4", func(c chance) string { return "no route to " + c.ipv4() }},
	{"ipv4 and port", func(c chance) string {
		return "dial tcp " + c.ipv4() + ":" + c.num(5) + ": connect: connection refused"
	}},
	{"both ends of a connection", func(c chance) string {
		return "read tcp " + c.ipv4() + ":" + c.num(5) + "->" + c.ipv4() + ":5432: connection reset by peer"
	}},
	{"ipv6", func(c chance) string { return "no route to " + c.ipv6() }},
	{"ipv6 and port", func(c chance) string {
		return "dial tcp [" + c.ipv6() + "]:" + c.num(5) + ": connect: connection refused"
	}},
	{"either address", func(c chance) string {
		return "cannot connect to " + c.one(c.ipv4()+":5432", "["+c.ipv6()+"]:5432")
	}},
	{"mac address", func(c chance) string {
		h := c.hex(6)
		return "device " + h[:2] + ":" + h[2:4] + ":" + h[4:6] + ":" + h[6:8] + ":" + h[8:10] + ":" + h[10:] + " is unknown"
	}},
	{"mail address", func(c chance) string {
		return "mailbox " + c.of(lower, 3+c.IntN(6)) + c.one("", ".", "-", "+") + c.of(base36, 4) + "@" + c.domain() + " is full"
	}},
	{"mail address in brackets", func(c chance) string {
		return "550 5.1.1 <" + c.of(lower, 6) + "@" + c.domain() + ">: Recipient address rejected"
	}},
	{"phone number", func(c chance) string { return "cannot send to +49 " + c.of(decimal[1:], 3) + " " + c.of(decimal, 7) }},
	// Times, durations, sizes, money.
	{"date, ISO", func(c chance) string { return "not valid before " + c.time().Format(time.RFC3339Nano) }},
	{"date, ISO with a zone", func(c chance) string {
		return "closed since " + c.time().Format("2006-01-02T15:04:05") + c.one("+02:00", "Z", "-05:30")
	}},
	{"date, SQL", func(c chance) string { return "slot " + c.time().Format("2006-01-02 15:04:05.000") + " is taken" }},
	{"date, Unix", func(c chance) string { return c.time().Format(time.UnixDate) + ": no lease" }},
	{"date, mail", func(c chance) string { return "expired on " + c.time().Format(time.RFC1123) + " by policy" }},
	{"date, mail with a number for the zone", func(c chance) string { return "expired on " + c.time().Format(time.RFC1123Z) }},
	{"date, log of a web server", func(c chance) string { return "[" + c.time().Format("02/Jan/2006:15:04:05 -0700") + "] refused" }},
	{"date, American", func(c chance) string {
		return "delivery on " + c.time().Format("1/2/2006 3:04:05 PM") + " is impossible"
	}},
	{"date, German", func(c chance) string { return "Termin am " + c.time().Format("02.01.2006 15:04") + " ist vergeben" }},
	{"date, in words", func(c chance) string { return "no rate for " + c.time().Format("January 2, 2006") }},
	{"date, in six forms", func(c chance) string {
		return "too late: " + c.time().Format([]string{time.RFC3339, time.DateTime, time.RFC1123, time.ANSIC, "02.01.2006", "20060102T150405Z"}[c.IntN(6)])
	}},
	{"time stamp", func(c chance) string { return "nonce " + strconv.FormatInt(c.time().UnixMilli(), 10) + " is too old" }},
	{"duration", func(c chance) string { return "timed out after " + c.duration().String() }},
	{"duration, rounded", func(c chance) string {
		return "no answer in " + c.one("850ms", "1m3s", "2h5m", "3s", "1.5s", "40µs", "12h0m0s")
	}},
	{"duration in words", func(c chance) string {
		return "lease ended " + c.num(2) + c.one(" seconds", " s", " ms", " minutes", " min", " hours", "s", "ms") + " ago"
	}},
	{"duration, ISO", func(c chance) string { return "took PT" + c.num(2) + "M" + c.num(2) + "." + c.num(3) + "S, too long" }},
	{"size", func(c chance) string {
		return "body of " + c.num(3) + c.one(" KB", "MB", " MiB", " bytes", "k", " GB", "B") + " is too large"
	}},
	{"money", func(c chance) string {
		return "cannot charge " + c.one("€12.30", "12,30 €", "$"+c.num(3), "EUR "+c.num(3), c.num(3)+".50 USD", "£7.99", "1,204.00 GBP", "CHF 12.-"[:6])
	}},
	{"version", func(c chance) string {
		return "plugin needs version " + c.one("v", "") + c.num(1) + "." + c.num(2) + "." + c.num(2)
	}},
	{"ratio", func(c chance) string { return "only " + c.num(1) + "/" + c.num(2) + " replicas are ready" }},
	// Quoted, JSON, forms of programs.
	{"quoted number", func(c chance) string { return "For input string: \"" + c.num(5) + "x\"" }},
	{"quoted sku", func(c chance) string {
		return "Duplicate entry '" + c.of(decimal, 4) + "-" + c.of(upper, 2) + "' for key 'PRIMARY'"
	}},
	{"quoted word for a unique key", func(c chance) string {
		return "Duplicate entry '" + c.one("anna", "bert", "carl", "Dora") + "' for key 'users.name'"
	}},
	{"quoted name of a person", func(c chance) string {
		return "no customer called \"" + c.one("Anna", "Bert", "Carl", "Dora") + " " + c.one("Meyer", "Smith", "Dupont", "O'Neill") + "\""
	}},
	{"quoted id", func(c chance) string { return "cannot find entity '" + c.of(base62, 12) + "' in cache" }},
	{"JSON", func(c chance) string {
		return `cannot map {"orderId":` + c.num(6) + `,"sku":"` + c.of(upper, 2) + "-" + c.of(decimal, 4) + `","qty":` + c.num(2) + `}`
	}},
	{"JSON with blanks", func(c chance) string {
		return `validation failed for {"id": "` + c.uuid() + `", "customer": "` + c.one("Anna Meyer", "Bert Smith") + `", "total": ` + c.num(3) + `.50}`
	}},
	{"dictionary of Python", func(c chance) string { return "bad item {'id': " + c.num(5) + ", 'token': '" + c.of(base62, 16) + "'}" }},
	{"record of Java", func(c chance) string {
		return "cannot ship Order{id=" + c.num(6) + ", sku=" + c.of(upper, 2) + c.of(decimal, 3) + ", state=PAID}"
	}},
	{"object of Lombok", func(c chance) string {
		return "Order(id=" + c.uuid() + ", version=" + c.num(2) + ") was changed by another"
	}},
	{"pairs of a log", func(c chance) string {
		return "level=error msg=failed order_id=" + c.num(6) + " trace_id=" + c.hex(16) + " took=" + c.duration().String()
	}},
	// Whole texts of libraries.
	{"text of urllib3", func(c chance) string {
		return "HTTPConnectionPool(host='shop', port=8080): Max retries exceeded with url: /orders/" + c.num(6) + " (Caused by NewConnectionError('<urllib3.connection.HTTPConnection object at 0x7f" + c.hex(5) + ">: Failed to establish a new connection: [Errno 111] Connection refused'))"
	}},
	{"text of S3", func(c chance) string {
		return "The specified key does not exist. (Service: Amazon S3; Status Code: 404; Error Code: NoSuchKey; Request ID: " + c.of(crockford, 16) + "; S3 Extended Request ID: " + base64.StdEncoding.EncodeToString(c.bytes(56)) + "; Proxy: null)"
	}},
	{"text of Hibernate", func(c chance) string {
		return "Row was updated or deleted by another transaction (or unsaved-value mapping was incorrect) : [com.shop.Order#" + c.num(6) + "]"
	}},
	{"text of MySQL", func(c chance) string {
		return "Lock wait timeout exceeded; try restarting transaction (host db-" + c.num(1) + ", thread " + c.num(6) + ", query id " + c.num(9) + ")"
	}},
	{"text of Azure", func(c chance) string {
		return "AADSTS70043: The refresh token has expired. Trace ID: " + c.uuid() + " Correlation ID: " + c.uuid() + " Timestamp: " + c.time().Format("2006-01-02 15:04:05Z")
	}},
	{"text in Chinese", func(c chance) string {
		return "订单" + c.num(6) + "未找到,客户编号 " + c.of(upper, 2) + c.of(decimal, 4)
	}},
	{"text in German", func(c chance) string {
		return "Für Kunde " + c.num(6) + " ist kein gültiger Tarif größer als " + c.num(2) + " hinterlegt"
	}},
	// Written after the rule: what other frameworks and fields say.
	{"text of Celery", func(c chance) string {
		return "Task shop.tasks.pay[" + c.uuid() + "] retry: Retry in " + c.num(3) + "s: ConnectionError()"
	}},
	{"text of Kafka Connect", func(c chance) string {
		return "Failed to deserialize data for topic orders to Avro: partition " + c.num(2) + ", offset " + c.num(8)
	}},
	{"text of PHP", func(c chance) string {
		return "Allowed memory size of " + c.of(decimal[1:], 9) + " bytes exhausted (tried to allocate " + c.num(6) + " bytes)"
	}},
	{"text of a deadlock", func(c chance) string {
		return "Process " + c.num(5) + " waits for ShareLock on transaction " + c.num(7) + "; blocked by process " + c.num(5) + "."
	}},
	{"object of Ruby", func(c chance) string {
		return "undefined method `total' for #<Order:0x0000" + c.hex(6) + " id: " + c.num(5) + ">"
	}},
	{"process of Elixir", func(c chance) string { return "no process: the process #PID<0." + c.num(4) + ".0> is not alive" }},
	{"coordinates", func(c chance) string {
		return fmt.Sprintf("no zone for (%.4f, %.4f)", c.Float64()*180-90, c.Float64()*360-180)
	}},
	{"postal code", func(c chance) string { return "nothing is delivered to postal code " + c.of(decimal, 5) }},
	{"tracking number", func(c chance) string {
		return "parcel 1Z" + c.of(decimal, 3) + c.of(upper, 2) + c.of(decimal, 10) + " has no label"
	}},
	{"tax number", func(c chance) string {
		return "VAT number " + c.one("DE", "ATU", "FR") + c.of(decimal, 9) + " is not valid"
	}},
	{"slot", func(c chance) string { return fmt.Sprintf("slot %02d:00-%02d:30 is full", c.IntN(24), c.IntN(24)) }},
	{"path in a document", func(c chance) string {
		return "orders[" + c.num(2) + "].lines[" + c.num(1) + "].price must be positive"
	}},
	{"XML", func(c chance) string {
		return "cannot map <orderId>" + c.num(6) + "</orderId><sku>" + c.of(upper, 2) + c.of(decimal, 4) + "</sku>"
	}},
	{"image of a container", func(c chance) string {
		return "cannot pull registry.example.com/shop/orders:" + c.num(1) + "." + c.num(2) + "." + c.num(1) + c.one("", "-rc.1") + "@sha256:" + c.hex(32)
	}},
	{"host with a port", func(c chance) string { return "db-" + c.num(2) + ".prod.example.com:" + c.num(4) + " does not answer" }},
	{"resource of Amazon", func(c chance) string {
		return "User is not authorized to perform sqs:SendMessage on arn:aws:sqs:eu-west-1:" + c.of(decimal, 12) + ":orders"
	}},
	{"key of Redis", func(c chance) string {
		return "lock 'order:" + c.num(5) + "' is held by node-" + c.num(1) + "@" + c.ipv4()
	}},
	{"token of a telephone", func(c chance) string { return "not registered: " + c.of(base62, 11) + ":APA91b" + c.of(nano, 60) }},
	{"token of Google", func(c chance) string { return "invalid credentials ya29.a0Af" + c.of(nano, 40) }},
	{"queue of MassTransit", func(c chance) string {
		return "no consumer on rabbitmq://broker/shop/" + c.of(upper, 4) + c.of(decimal, 2) + "_Worker_bus_" + c.of(base36, 26) + "?temporary=true"
	}},
	{"attempts", func(c chance) string {
		return "gave up after attempt " + c.num(1) + " of " + c.num(2) + " in " + c.duration().String()
	}},
	{"ordinal", func(c chance) string { return "the " + c.one("1st", "2nd", "3rd", "4th", "11th") + " attempt failed" }},
	{"several attempts", func(c chance) string { return "gave up after " + c.one("1 attempt", "2 attempts", "17 attempts") }},
	{"escaped value", func(c chance) string { return "bad name Anna%20" + c.of(decimal, 3) + "%2F" + c.of(upper, 3) }},
	{"bytes", func(c chance) string {
		return `invalid byte sequence for encoding "UTF8": 0x` + c.hex(1) + " 0x" + c.hex(1)
	}},
	{"code of a product", func(c chance) string { return "no product with code " + c.of(decimal[1:], 4) }},
	{"unknown code", func(c chance) string { return "unknown code " + c.of(decimal[1:], 4) }},
	{"failures counted", func(c chance) string { return "failed " + c.num(4) + " times" }},
	// Written after the rule, once more.
	{"text of Service Bus", func(c chance) string {
		return "The lock supplied is invalid. Reference:" + c.uuid() + ", TrackingId:" + c.uuid() + "_G" + c.num(1) + ", SystemTracker:shop:queue:orders, Timestamp:" + c.time().Format("2006-01-02T15:04:05")
	}},
	{"text of SQL Server", func(c chance) string {
		return "Violation of PRIMARY KEY constraint 'PK_Orders'. Cannot insert duplicate key in object 'dbo.Orders'. The duplicate key value is (" + c.num(6) + ", " + c.of(upper, 2) + c.of(decimal, 3) + ")."
	}},
	{"text of Elasticsearch", func(c chance) string {
		return "[orders-" + c.time().Format("2006.01.02") + "][" + c.num(1) + "] primary shard is not active Timeout: [" + c.one("1m", "30s", "500ms") + "]"
	}},
	{"text of Django", func(c chance) string { return "Customer matching query does not exist: pk=" + c.num(6) }},
	{"text of gRPC", func(c chance) string { return "rpc error: code = NotFound desc = order " + c.uuid() + " not found" }},
	{"text of CouchDB", func(c chance) string { return "Document update conflict: _rev " + c.num(2) + "-" + c.hex(16) }},
	{"member of a consumer group", func(c chance) string {
		return "Member consumer-orders-" + c.num(1) + "-" + c.uuid() + " has left the group"
	}},
	{"job of Sidekiq", func(c chance) string { return "JID-" + c.hex(12) + " was retried too often" }},
	{"telephone number", func(c chance) string {
		return "The 'To' number +49151" + c.of(decimal, 8) + " is not a valid phone number."
	}},
	{"iban in groups", func(c chance) string {
		return "IBAN DE" + c.of(decimal, 2) + " " + c.of(decimal, 4) + " " + c.of(decimal, 4) + " " + c.of(decimal, 4) + " " + c.of(decimal, 4) + " " + c.of(decimal, 2) + " is invalid"
	}},
	{"isbn", func(c chance) string {
		return "no book with ISBN 978-3-" + c.of(decimal, 2) + "-" + c.of(decimal, 6) + "-" + c.of(decimal, 1)
	}},
	{"vehicle", func(c chance) string {
		return "no vehicle with VIN WDB" + c.of(decimal, 7) + c.of(upper, 1) + c.of(decimal, 6)
	}},
	{"seat", func(c chance) string { return "seat " + c.num(2) + c.of("ABCDEF", 1) + " is taken" }},
	{"week", func(c chance) string {
		y, w := c.time().ISOWeek()
		return fmt.Sprintf("nothing planned for %d-W%02d-%d", y, w, 1+c.IntN(7))
	}},
	{"days and hours", func(c chance) string {
		return "overdue by " + c.one("1 day, 2 hours", "3 days, 4 hours", "17 hours", "12 days")
	}},
	{"memory of a pod", func(c chance) string {
		return "uses " + c.num(3) + "Mi of " + c.num(1) + "Gi and " + c.num(3) + "m CPU"
	}},
	{"signature of a webhook", func(c chance) string {
		return "bad signature t=" + strconv.FormatInt(c.time().Unix(), 10) + ",v1=" + c.hex(32)
	}},
	{"global id", func(c chance) string { return "gid://shop/Order/" + c.num(9) + " is archived" }},
	{"address with a zone", func(c chance) string { return "no route to fe80::" + c.hex(2) + ":" + c.hex(2) + "%eth" + c.num(1) }},
	{"network", func(c chance) string { return c.ipv4() + "/24 overlaps with " + c.ipv4() + "/16" }},
	{"security id of Windows", func(c chance) string {
		return "no account for S-1-5-21-" + c.num(9) + "-" + c.num(9) + "-" + c.num(9) + "-" + c.num(4)
	}},
	{"file of a process", func(c chance) string { return "cannot read /proc/" + c.num(5) + "/fd/" + c.num(2) }},
	{"place in a log", func(c chance) string { return fmt.Sprintf("replication stopped at LSN %X/%X", c.IntN(255), c.Uint32()) }},
	{"short id behind a prefix", func(c chance) string { return "order_" + c.of(base36, 10) + " has no lines" }},
	{"German amounts", func(c chance) string {
		return fmt.Sprintf("%d.%03d,%02d EUR liegt über dem Limit von 1.000,00 EUR", 1+c.IntN(99), c.IntN(1000), c.IntN(100))
	}},
	{"parts of a key", func(c chance) string { return "cart:" + c.of(base36, 6) + ":items is not a list" }},
	// Written after the rule, for the third time.
	{"channel of Slack", func(c chance) string { return "channel C0" + c.of(decimal+upper, 9) + " is archived" }},
	{"document of Google", func(c chance) string { return "spreadsheet 1" + c.of(nano, 43) + " is not shared with the service" }},
	{"message of Twilio", func(c chance) string { return "Message SM" + c.hex(16) + " could not be sent" }},
	{"capture of PayPal", func(c chance) string { return "capture " + c.of(decimal+upper, 17) + " was refunded" }},
	{"order of Amazon", func(c chance) string {
		return "order " + c.of(decimal, 3) + "-" + c.of(decimal, 7) + "-" + c.of(decimal, 7) + " is pending"
	}},
	{"article of Amazon", func(c chance) string { return "no offer for B0" + c.of(decimal+upper, 8) }},
	{"record of Salesforce", func(c chance) string { return "UNABLE_TO_LOCK_ROW: record 0065g00000" + c.of(base62, 8) + " is locked" }},
	{"document of Firestore", func(c chance) string {
		return "no document at /users/" + c.of(base62, 28) + "/orders/" + c.of(base62, 20)
	}},
	{"checksums", func(c chance) string { return "expected checksum 0x" + c.hex(2) + ", was 0x" + c.hex(2) }},
	{"object of Java with quotes", func(c chance) string {
		return "cannot save Customer{id=" + c.num(5) + ", email='" + c.of(lower, 5) + "@" + c.domain() + "', zip='" + c.of(decimal, 5) + "'}"
	}},
	{"workflow", func(c chance) string {
		return "workflow order-" + c.uuid() + ", run " + c.uuid() + " is already closed"
	}},
	{"text of Spring", func(c chance) string {
		return "Failed to convert from type [java.lang.String] to type [java.lang.Long] for value [" + c.num(3) + "a]"
	}},
	{"header of a request", func(c chance) string { return "rejected, Retry-After: " + c.num(3) + ", X-Request-Id: " + c.uuid() }},
	{"queue of the server", func(c chance) string { return "no queue 'amq.gen-" + c.of(nano, 22) + "' in vhost '/'" }},
	{"consumer tag", func(c chance) string { return "consumer amq.ctag-" + c.of(nano, 22) + " was cancelled" }},
	{"number with a slash", func(c chance) string { return "policy 2026/" + c.of(decimal, 6) + " has lapsed" }},
	{"file with date and version", func(c chance) string {
		return "cannot open report_" + c.time().Format("2006-01-02") + "_v" + c.num(1) + ".pdf"
	}},
	{"use of memory", func(c chance) string {
		return fmt.Sprintf("heap is %.1f%% full: %.1fG of %dG", c.Float64()*100, c.Float64()*9, 1+c.IntN(64))
	}},
	{"position in a document", func(c chance) string { return "XML document is not well formed at (" + c.num(3) + ";" + c.num(2) + ")" }},
	{"quantity", func(c chance) string {
		return c.num(2) + " x " + c.of(decimal, 4) + "-" + c.of(upper, 2) + " are not in stock"
	}},
	{"session in a cookie", func(c chance) string {
		return "JSESSIONID=" + strings.ToUpper(c.hex(16)) + ".node" + c.num(1) + " has expired"
	}},
	{"amount in cents", func(c chance) string { return "amount_cents: " + c.num(6) + " differs from total_cents: " + c.num(6) }},
}

// pair is two texts of different causes.
type pair struct{ a, b string }

var pairs = []pair{
	// HTTP.
	{"HTTP 404", "HTTP 429"},
	{"HTTP 429", "HTTP 503"},
	{"Request failed with status code 404", "Request failed with status code 429"},
	{"unexpected status: 502", "unexpected status: 503"},
	{"HTTP/1.1 404 on /orders/12", "HTTP/1.1 503 on /orders/12"},
	{"GET /orders/1234 returned 404", "GET /orders/1234 returned 503"},
	{"POST https://pay.example.com/charges: 402", "POST https://pay.example.com/charges: 500"},
	{"Server returned HTTP response code: 503 for URL: https://a.example.com/x", "Server returned HTTP response code: 401 for URL: https://a.example.com/x"},
	{"The remote server returned an error: (503)", "The remote server returned an error: (404)"},
	{`{"status":404,"path":"/orders/12"}`, `{"status":503,"path":"/orders/12"}`},
	{"upstream responded with 502 for order 12", "upstream responded with 429 for order 12"},
	{"statusCode=404, orderId=12", "statusCode=409, orderId=12"},
	{"404 Client Error for url: https://a.example.com/12", "429 Client Error for url: https://a.example.com/12"},
	{"too many 4xx answers", "too many 5xx answers"},
	// Databases.
	{"could not serialize access (SQLSTATE 40001)", "could not serialize access (SQLSTATE 23505)"},
	{"ERROR: refused (SQLSTATE=40P01)", "ERROR: refused (SQLSTATE=57014)"},
	{"SQLSTATE[HY000] [2002] failed", "SQLSTATE[HY000] [1045] failed"},
	{"SQLSTATE[23000]: Integrity constraint violation: 1062 failed", "SQLSTATE[23000]: Integrity constraint violation: 1452 failed"},
	{"40P01: the transaction failed", "23505: the transaction failed"},
	{"SQL Error: 1213, SQLState: 40001", "SQL Error: 1062, SQLState: 40001"},
	{"SQL Error: 0, SQLState: 40001", "SQL Error: 0, SQLState: 23505"},
	{"ORA-00001: failed for row 12", "ORA-01555: failed for row 12"},
	{"ORA-00001", "ORA-01555"},
	{"Error 1213 (40001): query failed", "Error 1062 (40001): query failed"},
	{"Error 1213: try again", "Error 1062: try again"},
	{"503", "404"},
	{`(pymysql.err.OperationalError) (1213, "query failed")`, `(pymysql.err.OperationalError) (1205, "query failed")`},
	{"Kafka: broker failure", "Redis: broker failure"},
	{`(1213, "query failed")`, `(1062, "query failed")`},
	{"DB2 SQL Error: SQLCODE=-911, SQLSTATE=40001, SQLERRMC=2", "DB2 SQL Error: SQLCODE=-803, SQLSTATE=40001, SQLERRMC=2"},
	{"E11000 on write", "E11600 on write"},
	{"MongoServerError code 112", "MongoServerError code 251"},
	{"Code: 241. DB::Exception: query failed", "Code: 159. DB::Exception: query failed"},
	{`violates unique constraint "orders_pkey"`, `violates unique constraint "orders_number_key"`},
	{`column "price" does not exist`, `column "customer_id" does not exist`},
	{"Unknown column 'o.price' in 'field list'", "Unknown column 'o.vat' in 'field list'"},
	{"Unknown column 'o.price' in 'field list'", "Unknown column 'o.price' in 'where clause'"},
	// Systems and processes.
	{"process ended with exit 1", "process ended with exit 137"},
	{"command failed: exit status 1", "command failed: exit status 127"},
	{"Process exited with code 1", "Process exited with code 137"},
	{"killed by signal 9", "killed by signal 11"},
	{"signal: killed", "signal: segmentation fault"},
	{"worker got SIGKILL", "worker got SIGTERM"},
	{"connect ECONNREFUSED 10.0.0.7:5432", "connect ETIMEDOUT 10.0.0.7:5432"},
	{"[Errno 111] connect failed", "[Errno 110] connect failed"},
	{"connect failed (os error 111)", "connect failed (os error 104)"},
	{"write failed, errno=28", "write failed, errno=5"},
	{"[WinError 10061] refused", "[WinError 10054] refused"},
	{"Exception from HRESULT: 0x80070005", "Exception from HRESULT: 0x80070020"},
	{"rc=-11 from the device", "rc=-5 from the device"},
	// RPC, TLS, mail, brokers, clouds.
	{"rpc error: code = Unavailable desc = no", "rpc error: code = DeadlineExceeded desc = no"},
	{"rpc error: code = 14", "rpc error: code = 4"},
	{"StatusCode.UNAVAILABLE", "StatusCode.NOT_FOUND"},
	{"14 UNAVAILABLE: call failed", "4 DEADLINE_EXCEEDED: call failed"},
	{"SSL alert number 40", "SSL alert number 48"},
	{"tls: alert(40)", "tls: alert(42)"},
	{"remote error: tls: handshake failure", "remote error: tls: bad certificate"},
	{"SMTP error 550 for a@example.com", "SMTP error 421 for a@example.com"},
	{"550 5.1.1 <a@example.com>: refused", "550 5.7.1 <a@example.com>: refused"},
	{"websocket: close 1006 (abnormal closure)", "websocket: close 1009 (abnormal closure)"},
	{"channel error; reply-code=404, class-id=60", "channel error; reply-code=406, class-id=60"},
	{"MQRC reason code 2035", "MQRC reason code 2059"},
	{"LDAP: error code 49 - no", "LDAP: error code 32 - no"},
	{"(Service: Amazon S3; Status Code: 403; Error Code: AccessDenied; Request ID: 4KQ2)", "(Service: Amazon S3; Status Code: 403; Error Code: SlowDown; Request ID: 4KQ2)"},
	{"An error occurred (ThrottlingException) when calling PutItem", "An error occurred (ValidationException) when calling PutItem"},
	{"AADSTS70043: no token", "AADSTS50076: no token"},
	{"Prisma failed: P2002", "Prisma failed: P2025"},
	{`{"error":{"code":"card_declined"}}`, `{"error":{"code":"expired_card"}}`},
	{`{"type":"rate_limit","id":12}`, `{"type":"overloaded","id":12}`},
	// Names.
	{"KeyError: 'price'", "KeyError: 'customer'"},
	{"'price'", "'customer'"},
	{`No handler for "OrderPlaced"`, `No handler for "OrderCancelled"`},
	{"no handler for 'order.placed'", "no handler for 'order.cancelled'"},
	{"no handler for 'order-placed'", "no handler for 'order-cancelled'"},
	{"Unrecognized field \"vat\" (class com.shop.Order)", "Unrecognized field \"price\" (class com.shop.Order)"},
	{"Unrecognized field \"vat\" (class com.shop.Order)", "Unrecognized field \"vat\" (class com.shop.Bill)"},
	{"Cannot read properties of undefined (reading 'price')", "Cannot read properties of undefined (reading 'customer')"},
	{"'NoneType' object has no attribute 'price'", "'NoneType' object has no attribute 'items'"},
	{"class com.shop.Order cannot be cast to class com.shop.Bill", "class com.shop.Order cannot be cast to class com.shop.Mail"},
	{`Cannot invoke "Order.getPrice()" because "order" is null`, `Cannot invoke "Order.getCustomer()" because "order" is null`},
	{"no queue 'orders' in vhost '/'", "no queue 'bills' in vhost '/'"},
	{"missing required parameter: amount", "missing required parameter: currency"},
	{"json: cannot unmarshal string into Go struct field Order.qty of type int", "json: cannot unmarshal string into Go struct field Order.vat of type int"},
	{"cannot cast int32 to string", "cannot cast int64 to string"},
	{"unsupported digest SHA-1", "unsupported digest SHA-256"},
	{"service 'billing' is down: order 12", "service 'shipping' is down: order 12"},
	{"state machine: cannot go from PAID to NEW", "state machine: cannot go from SHIPPED to NEW"},
	{"GET /orders/12 failed", "DELETE /orders/12 failed"},
	{"GET /orders/12 failed", "GET /customers/12 failed"},
	{"timeout of https://pay.example.com/charges?id=1", "timeout of https://mail.example.com/charges?id=1"},
	// Written after the rule.
	{"PG::NotNullViolation on write", "PG::UniqueViolation on write"},
	{"ORA-12541: no listener at 10.0.0.1", "ORA-12170: no listener at 10.0.0.1"},
	{"DB2: SQLCODE -204 in statement 12", "DB2: SQLCODE -206 in statement 12"},
	{"container exited, exit code: 139", "container exited, exit code: 143"},
	{"worker was terminated (signal 11)", "worker was terminated (signal 6)"},
	{"broker answered error_code=3 for orders-1", "broker answered error_code=6 for orders-1"},
	{"net::ERR_HTTP2_PROTOCOL_ERROR", "net::ERR_HTTP2_STREAM_ERROR"},
	{"Response status code does not indicate success: 503.", "Response status code does not indicate success: 500."},
	{"Operation returned an invalid status code 'Conflict'", "Operation returned an invalid status code 'NotFound'"},
	{"AMQP close-reason, initiated by Peer, code=404", "AMQP close-reason, initiated by Peer, code=406"},
	{"error MSB3027: copy failed", "error MSB3021: copy failed"},
	{"remote error: TLS alert 112", "remote error: TLS alert 70"},
	{"x509: certificate has expired", "x509: certificate signed by unknown authority"},
	{"no schema for OrderPlacedV1", "no schema for OrderPlacedV2"},
	{`Status(StatusCode="Unavailable", Detail="")`, `Status(StatusCode="DeadlineExceeded", Detail="")`},
	{"card refused with decline code 51", "card refused with decline code 05"},
	{"mail bounced, status=4.2.2", "mail bounced, status=5.1.1"},
	{"EACCES: open '/tmp/a1'", "ENOENT: open '/tmp/a1'"},
	{"fault SOAP-ENV:Server", "fault SOAP-ENV:Client"},
	{"0x80070005 from the driver", "0x80004005 from the driver"},
	{"curl: (6) failed", "curl: (28) failed"},
	// Written after the rule, once more.
	{"Violation of PRIMARY KEY constraint 'PK_Orders'", "Violation of PRIMARY KEY constraint 'PK_Bills'"},
	{"Msg 1205, Level 13, State 51", "Msg 2627, Level 13, State 51"},
	{"Twilio error 21211 for +49123", "Twilio error 21610 for +49123"},
	{"Server error: code=1100, replicas 2", "Server error: code=1200, replicas 2"},
	{"Exception (504) Reason: \"closed\"", "Exception (404) Reason: \"closed\""},
	{"[type=mapper_parsing_exception, reason=no]", "[type=version_conflict_engine_exception, reason=no]"},
	{"lookup shop: NXDOMAIN", "lookup shop: SERVFAIL"},
	{"Failed to bind property 'price': rejected value [12]", "Failed to bind property 'vat': rejected value [12]"},
	{"grpc-status: 5", "grpc-status: 13"},
	{"HTTP error: 413 for 12 bytes", "HTTP error: 414 for 12 bytes"},
	{"FTP reply 425", "FTP reply 530"},
	{"IDoc 4711 has status 51", "IDoc 4711 has status 53"},
	{"failed with code 1100", "failed with code 1200"},
	{"closed with code 1006", "closed with code 1009"},
	{"handler Orders::Place failed", "handler Orders::Cancel failed"},
	{"validation failed: field=price", "validation failed: field=vat"},
	{"Request failed (503)", "Request failed (404)"},
	{"upstream error: 502", "upstream error: 504"},
	{"System.Net.Sockets.SocketException (10061): no", "System.Net.Sockets.SocketException (10054): no"},
	{"npm ERR! code E404", "npm ERR! code E403"},
	{"subprocess returned non-zero exit status 2", "subprocess returned non-zero exit status 127"},
	// Written after the rule, for the third time.
	{"Payment declined: insufficient_funds", "Payment declined: do_not_honor"},
	{"ClassNotFound: com.shop.OrderDto", "ClassNotFound: com.shop.BillDto"},
	{"NOAUTH from redis-1", "READONLY from redis-1"},
	{"Response: 500 from billing", "Response: 503 from billing"},
	{"http.status_code=500 url=/x", "http.status_code=502 url=/x"},
	{"ERROR [42P01]: failed", "ERROR [42703]: failed"},
	{"result code 10: failed", "result code 20: failed"},
	{"return code 0x80 from the card", "return code 0x90 from the card"},
	{"Exited (1) 3 minutes ago", "Exited (137) 3 minutes ago"},
	{"oom: signal=9", "oom: signal=11"},
	{"vhost 'shop' not found", "vhost 'mail' not found"},
	{`Cannot query field "vat" on type "Order"`, `Cannot query field "price" on type "Order"`},
	{"SOAP fault code: 1001", "SOAP fault code: 1002"},
	{"statusCode: 404, body: null", "statusCode: 410, body: null"},
	{"SmtpException: 5.7.1", "SmtpException: 4.7.0"},
	{"received 429 while charging order 12", "received 500 while charging order 12"},
	{"PLS-00201: identifier", "PLS-00306: identifier"},
}

// The letters of one cause are one group, whatever ids their texts have.
func TestOneCauseIsOneGroup(t *testing.T) {
	one, groups := 0, 0
	for _, s := range shapes {
		c, patterns := chanceOf(s.name), map[string]string{}
		for range texts {
			text := s.text(c)
			patterns[letter.Pattern(text)] = text
		}
		groups += len(patterns)
		if len(patterns) == 1 {
			one++
			continue
		}
		t.Errorf("%s: %d groups:", s.name, len(patterns))
		for i, pattern := range slices.Sorted(func(yield func(string) bool) {
			for p := range patterns {
				if !yield(p) {
					return
				}
			}
		}) {
			if i == 4 {
				break
			}
			t.Logf("\t%s\n\t\tof %s", pattern, patterns[pattern])
		}
	}
	t.Logf("%d of %d shapes are one group; %d groups in all", one, len(shapes), groups)
}

// Texts that differ in what tells causes apart are two groups.
func TestDifferentCausesAreDifferentGroups(t *testing.T) {
	apart := 0
	for _, p := range pairs {
		if got := letter.Pattern(p.a); got == letter.Pattern(p.b) {
			t.Errorf("one group, %q:\n\t%s\n\t%s", got, p.a, p.b)
			continue
		}
		apart++
	}
	t.Logf("%d of %d pairs are apart", apart, len(pairs))
}
