package openapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/admission"
	"bartleby.mq/internal/run/broker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a broker in memory behind this API.
type node struct {
	*testing.T
	b      *broker.Broker
	h      http.Handler
	access Access
	log    *strings.Builder // what was logged and audited
	now    time.Time

	key    Key    // requests are signed with
	acs3   bool   // by version 3
	method string // of requests
	nonce  int
}

// The keys there are: of an administrator, and of one who may configure what begins
// with "own" in the virtual host /.
var (
	adminKey = Key{ID: "LTAIadmin", Secret: "secret of the administrator", User: "guest"}
	adaKey   = Key{ID: "LTAIada", Secret: "secret of another", User: "ada"}
)

func start(t *testing.T) *node {
	t.Helper()
	n := &node{
		T: t, access: Access{Keys: []Key{adminKey, adaKey}}, log: new(strings.Builder), now: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC),
		key: adminKey, method: http.MethodPost,
	}
	logger := slog.New(slog.NewTextHandler(n.log, nil))
	var err error
	n.b, err = broker.Open(broker.Options{
		Dir: "data", FS: vfs.NewMem(), NodeName: "rabbit@test", LoopbackUsers: []string{"guest"},
		AccountRules: broker.AccountRules{Throttle: admission.ThrottleLimits{Free: 100, Most: time.Second}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.b.Close(); err != nil {
			t.Error(err)
		}
	})
	err = n.b.CreateDefault(broker.Default{
		VHost: "/", User: "guest", Password: "guest", Tags: []string{auth.Administrator}, Configure: ".*", Write: ".*", Read: ".*",
	})
	if err != nil {
		t.Fatal(err)
	}
	hash, err := n.b.HashPassword("ada")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.b.By("").Do(declare.PutUser{Name: "ada", Password: hash, Tags: nil}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.b.By("").Do(declare.PutPermission{Permission: auth.Permission{VHost: "/", User: "ada", Configure: "^own", Write: "^own", Read: "^own"}}); err != nil {
		t.Fatal(err)
	}
	n.h = New(Options{
		Broker: n.b, Access: func() Access { return n.access }, Logger: logger, Audit: logger, Now: func() time.Time { return n.now },
		Next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "next", http.StatusTeapot) }),
	})
	return n
}

// with is the node as asked with another key.
func (n *node) with(k Key) *node {
	other := *n
	other.key, other.nonce = k, n.nonce+1000
	return &other
}

// reply is what a request got.
type reply struct {
	status int
	object map[string]any
}

// code is the code of a refusal, "" if there was none.
func (r reply) code() string {
	if r.status == http.StatusOK {
		return ""
	}
	code, _ := r.object["Code"].(string)
	return code
}

// send sends a request as it is.
func (n *node) send(r *http.Request) reply {
	n.Helper()
	w := httptest.NewRecorder()
	n.h.ServeHTTP(w, r)
	a := reply{status: w.Code}
	if w.Header().Get("Content-Type") != "application/json;charset=utf-8" {
		return a
	}
	if err := json.Unmarshal(w.Body.Bytes(), &a.object); err != nil {
		n.Fatalf("%q: %v", w.Body, err)
	}
	if id, _ := a.object["RequestId"].(string); id == "" || id != w.Header().Get("X-Acs-Request-Id") {
		n.Errorf("the request's name is %q", id)
	}
	return a
}

// do asks for an action, with "InstanceId" among the parameters unless they say
// otherwise.
func (n *node) do(action string, parameters ...string) reply {
	n.Helper()
	return n.send(n.request(action, parameters...))
}

// must is do for what cannot fail; it returns the data.
func (n *node) must(action string, parameters ...string) map[string]any {
	n.Helper()
	a := n.do(action, parameters...)
	if a.status != http.StatusOK {
		n.Fatalf("%s %q: %d %v", action, parameters, a.status, a.object)
	}
	data, _ := a.object["Data"].(map[string]any)
	return data
}

// refused asks for what is to be refused with a status and a code.
func (n *node) refused(status int, code, action string, parameters ...string) {
	n.Helper()
	if a := n.do(action, parameters...); a.status != status || a.code() != code {
		n.Errorf("%s %q: got %d %v, want %d %s", action, parameters, a.status, a.object, status, code)
	}
}

// request is a signed request.
func (n *node) request(action string, parameters ...string) *http.Request {
	n.nonce++
	p := url.Values{"InstanceId": {"amqp-cn-1"}}
	for i := 0; i < len(parameters); i += 2 {
		p.Set(parameters[i], parameters[i+1])
	}
	nonce, at := "nonce"+strconv.Itoa(n.nonce), n.now.Format(timeLayout)
	if n.acs3 {
		return n.acs3Request(action, nonce, at, p)
	}
	for name, value := range map[string]string{
		"Action": action, "Version": version, "Format": "JSON", "AccessKeyId": n.key.ID, "SignatureNonce": nonce, "Timestamp": at,
		"SignatureMethod": "HMAC-SHA1", "SignatureVersion": "1.0",
	} {
		if !p.Has(name) {
			p.Set(name, value)
		}
	}
	p.Set("Signature", signSHA1(n.key.Secret, rpcText(n.method, once(p))))
	if n.method == http.MethodPost {
		return post(p.Encode())
	}
	return get(n.method, p.Encode())
}

// once are values of which none is there twice.
func once(v url.Values) parameters {
	p := parameters{}
	for name := range v {
		p[name] = v.Get(name)
	}
	return p
}

// post is a request with a form, from this machine.
func post(form string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.RemoteAddr = "127.0.0.1:1234"
	return r
}

// get is a request with all it says in its query, from this machine.
func get(method, query string) *http.Request {
	r := httptest.NewRequest(method, "/?"+query, nil)
	r.RemoteAddr = "127.0.0.1:1234"
	return r
}

// acs3Request is signed by version 3, as Alibaba's newer clients do.
func (n *node) acs3Request(action, nonce, at string, p url.Values) *http.Request {
	r := post(p.Encode())
	body := p.Encode()
	if n.method != http.MethodPost {
		r, body = get(n.method, p.Encode()), ""
	}
	sum := sha256.Sum256([]byte(body))
	hash := hex.EncodeToString(sum[:])
	for name, value := range map[string]string{
		actionHeader: action, versionHeader: version, dateHeader: at, nonceHeader: nonce, hashHeader: hash,
	} {
		r.Header.Set(name, value)
	}
	signACS3(r, n.key, hash)
	return r
}

// signACS3 signs what is in the headers of a request.
func signACS3(r *http.Request, k Key, hash string) {
	headers := []string{"host", "x-acs-action", "x-acs-content-sha256", "x-acs-date", "x-acs-signature-nonce", "x-acs-version"}
	request, _ := canonicalRequest(r, headers, hash)
	sum := sha256.Sum256([]byte(request))
	r.Header.Set("Authorization", acs3+" Credential="+k.ID+",SignedHeaders="+strings.Join(headers, ";")+
		",Signature="+signSHA256(k.Secret, acs3+"\n"+hex.EncodeToString(sum[:])))
}

// names are the values of a member of each element of a list in the data.
func names(data map[string]any, list, member string) (all []string) {
	elements, _ := data[list].([]any)
	for _, e := range elements {
		name, _ := e.(map[string]any)[member].(string)
		all = append(all, name)
	}
	return all
}

// operator declares what a test needs otherwise.
func (n *node) operator(v message.VHost) *broker.Connection { return n.b.AsOperator("test", v) }

// rulesOf let so many logins fail at once, and hold others back so long.
func rulesOf(free int, most time.Duration) broker.AccountRules {
	return broker.AccountRules{Throttle: admission.ThrottleLimits{Free: free, Most: most}}
}
