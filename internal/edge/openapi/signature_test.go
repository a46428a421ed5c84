package openapi

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The example of Alibaba's documents for signatures of version 1.
func TestDL22_17_DocumentedSignatureOfVersion1(t *testing.T) {
	p := parameters{}
	const query = "Timestamp=2016-02-23T12:46:24Z&Format=XML&AccessKeyId=testid&Action=DescribeRegions&SignatureMethod=HMAC-SHA1" +
		"&SignatureNonce=3ee8c1b8-83d3-44af-a94f-4e0ad82fd6cf&Version=2014-05-26&SignatureVersion=1.0&Signature=not+part+of+it"
	if err := p.add(query); err != nil {
		t.Fatal(err)
	}
	text := rpcText("GET", p)
	const wantText = "GET&%2F&AccessKeyId%3Dtestid%26Action%3DDescribeRegions%26Format%3DXML%26SignatureMethod%3DHMAC-SHA1" +
		"%26SignatureNonce%3D3ee8c1b8-83d3-44af-a94f-4e0ad82fd6cf%26SignatureVersion%3D1.0%26Timestamp%3D2016-02-23T12%253A46%253A24Z%26Version%3D2014-05-26"
	if text != wantText {
		t.Errorf("got  %s\nwant %s", text, wantText)
	}
	if got, want := signSHA1("testsecret", text), "OLeaidS1JvxuMvnyHOwuJ+uX5qY="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The example of Alibaba's documents for signatures of version 3.
func TestDL22_17_DocumentedSignatureOfVersion3(t *testing.T) {
	const emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	const want = "06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0"
	r := httptest.NewRequest(http.MethodPost, "http://ecs.cn-shanghai.aliyuncs.com/?RegionId=cn-shanghai&ImageId=win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd", nil)
	for name, value := range map[string]string{
		actionHeader: "RunInstances", versionHeader: "2014-05-26", dateHeader: "2023-10-26T10:22:32Z",
		nonceHeader: "3156853299f313e23d1673dc12e1703d", hashHeader: emptyHash,
	} {
		r.Header.Set(name, value)
	}
	s, err := acs3Signature(r, "ACS3-HMAC-SHA256 Credential=YourAccessKeyId,SignedHeaders=host;x-acs-action;x-acs-content-sha256;x-acs-date;"+
		"x-acs-signature-nonce;x-acs-version,Signature="+want, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.sign("YourAccessKeySecret", s.text); got != want || s.given != want || s.key != "YourAccessKeyId" || s.action != "RunInstances" {
		t.Errorf("got %s by %+v, want %s", got, s, want)
	}
}

// What is unusual in names and values is encoded once, and blanks as RFC 3986 has them.
func TestCanonicalQuery(t *testing.T) {
	for _, c := range []struct{ query, want string }{
		{"", ""},
		{"b=2&a=1&B=3", "B=3&a=1&b=2"},
		{"a", "a="},
		{"a=x+y", "a=x%20y"},
		{"a=x%2By", "a=x%2By"},
		{"a=~-_.", "a=~-_."},
		{"a=*'()!", "a=%2A%27%28%29%21"},
		{"a=%23%2F%40", "a=%23%2F%40"},
		{"a=%E9%98%9F", "a=%E9%98%9F"},
		{"a+b=1", "a%20b=1"},
	} {
		p := parameters{}
		if err := p.add(c.query); err != nil {
			t.Errorf("%q: %v", c.query, err)
		}
		if got := canonicalQuery(p, ""); got != c.want {
			t.Errorf("%q: got %q, want %q", c.query, got, c.want)
		}
	}
}

// A name that is there twice has no one value that was signed.
func TestParametersAreThereOnce(t *testing.T) {
	for _, query := range []string{"a=1&a=2", "a=1&a=1", "a=%zz", "a=1;b=2"} {
		if err := (parameters{}).add(query); err == nil {
			t.Errorf("%q is taken", query)
		}
	}
	r := post("QueueName=q")
	r.URL.RawQuery = "QueueName=other"
	if _, err := parseParameters(r, []byte("QueueName=q")); err == nil {
		t.Error("the query and the form may both say QueueName")
	}
	if err := (parameters{}).add(strings.Repeat("&x", maxParameters) + "&y=1"); err == nil {
		t.Error("a name is there more than once")
	}
}

// What is not text could not be stored as it came.
func TestParametersAreText(t *testing.T) {
	n := start(t)
	n.must("CreateQueue", "VirtualHost", "/", "QueueName", "q")
	binding := []string{"VirtualHost", "/", "SourceExchange", "amq.headers", "BindingType", "QUEUE", "DestinationName", "q"}
	for _, bad := range [][]string{{"Argument", "x-match:all;k\xff:v"}, {"Argument", "x-match:all;k:\xff"}, {"Other\xff", "v"}} {
		n.refused(http.StatusBadRequest, "InvalidParameter", "CreateBinding", append(binding, bad...)...)
	}
}

// Both styles are taken, by both methods.
func TestDL22_17_BothStylesOfSignatures(t *testing.T) {
	for _, acs3 := range []bool{false, true} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			n := start(t)
			n.acs3, n.method = acs3, method
			n.must("CreateQueue", "VirtualHost", "/", "QueueName", "a-_.#/@z")
			data := n.must("ListQueues", "VirtualHost", "/", "MaxResults", "10")
			if got := names(data, "Queues", "Name"); len(got) != 1 || got[0] != "a-_.#/@z" {
				t.Errorf("version 3 %t, %s: got %q", acs3, method, got)
			}
		}
	}
}

// A wrong signature is refused, whatever is wrong with it.
func TestDL22_17_WrongSignatures(t *testing.T) {
	n := start(t)
	for _, acs3 := range []bool{false, true} {
		n.acs3 = acs3
		bad := n.with(Key{ID: adminKey.ID, Secret: adminKey.Secret + "?", User: "guest"})
		bad.refused(400, "SignatureDoesNotMatch", "CreateQueue", "VirtualHost", "/", "QueueName", "q")
		bad = n.with(Key{ID: "LTAInobody", Secret: adminKey.Secret})
		bad.refused(404, "InvalidAccessKeyId.NotFound", "CreateQueue", "VirtualHost", "/", "QueueName", "q")
		bad = n.with(Key{ID: strings.Repeat("k", 1000), Secret: adminKey.Secret})
		bad.refused(404, "InvalidAccessKeyId.NotFound", "ListVirtualHosts")

		// What is changed on its way is not what was signed.
		r := n.request("CreateQueue", "VirtualHost", "/", "QueueName", "q")
		r.URL.RawQuery = "AutoDeleteState=true"
		if a := n.send(r); a.code() != "SignatureDoesNotMatch" {
			t.Errorf("a parameter more: %d %v", a.status, a.object)
		}
	}
	if got := names(n.must("ListQueues", "VirtualHost", "/"), "Queues", "Name"); len(got) != 0 {
		t.Errorf("there is %q", got)
	}
	if log := n.log.String(); !strings.Contains(log, "OpenAPI login refused") || strings.Contains(log, adminKey.Secret) {
		t.Errorf("the log is\n%s", log)
	}
}

// Version 3: the body, the action and whatever else is said in headers must be signed.
func TestDL22_17_UnsignedParts(t *testing.T) {
	n := start(t)
	n.acs3 = true
	for _, c := range []struct {
		name   string
		change func(r *http.Request)
		code   string
	}{
		{"another action", func(r *http.Request) { r.Header.Set(actionHeader, "DeleteVirtualHost") }, "SignatureDoesNotMatch"},
		{"another host", func(r *http.Request) { r.Host = "elsewhere" }, "SignatureDoesNotMatch"},
		{"another body", func(r *http.Request) { r.Body = post("VirtualHost=other").Body }, "InvalidContentSha256"},
		{"no hash", func(r *http.Request) { r.Header.Del(hashHeader) }, "InvalidContentSha256"},
		{"another header", func(r *http.Request) { r.Header.Set("X-Acs-Other", "x") }, "IncompleteSignature"},
		{"headers not in order", func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "host;x-acs-action", "x-acs-action;host", 1))
		}, "IncompleteSignature"},
		{"the action not signed", func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "x-acs-action;", "", 1))
		}, "IncompleteSignature"},
		{"the host not signed", func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "host;", "", 1))
		}, "IncompleteSignature"},
		{"another algorithm", func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "SHA256", "SM3", 1))
		}, "InvalidSignatureMethod"},
		{"nonsense", func(r *http.Request) { r.Header.Set("Authorization", "ACS3-HMAC-SHA256 x") }, "IncompleteSignature"},
	} {
		r := n.request("CreateVirtualHost", "VirtualHost", "v")
		c.change(r)
		if a := n.send(r); a.code() != c.code {
			t.Errorf("%s: got %d %v, want %s", c.name, a.status, a.object, c.code)
		}
	}
}

// What a request must say of itself is asked for by name.
func TestDL22_17_MissingParameters(t *testing.T) {
	n := start(t)
	for _, name := range []string{"Action", "AccessKeyId", "Signature", "SignatureNonce", "Timestamp", "Version"} {
		p := url.Values{}
		for k, v := range map[string]string{
			"Action": "ListVirtualHosts", "Version": version, "AccessKeyId": adminKey.ID, "SignatureNonce": "x", "Timestamp": "x", "Signature": "x",
		} {
			if k != name {
				p.Set(k, v)
			}
		}
		if a := n.send(post(p.Encode())); a.status != 400 || a.code() != "Missing"+name {
			t.Errorf("without %s: got %d %v", name, a.status, a.object)
		}
	}
	for _, c := range []struct {
		status           int
		code, name, text string
	}{
		{400, "InvalidVersion", "Version", "2014-05-26"},
		{404, "InvalidAction.NotFound", "Action", "UpdateQueue"},
		{400, "InvalidParameter.Format", "Format", "XML"},
		{400, "InvalidSignatureMethod", "SignatureMethod", "HMAC-MD5"},
		{400, "InvalidSignatureVersion", "SignatureVersion", "2.0"},
		{400, "InvalidTimeStamp.Format", "Timestamp", "yesterday"},
	} {
		n.refused(c.status, c.code, "ListVirtualHosts", c.name, c.text)
	}
	n.method = http.MethodPut
	n.refused(400, "UnsupportedHTTPMethod", "ListVirtualHosts")
}

// A request is good for a quarter of an hour, and once.
func TestDL22_17_RequestsAreGoodOnce(t *testing.T) {
	for _, acs3 := range []bool{false, true} {
		n := start(t)
		n.acs3, n.method = acs3, http.MethodGet
		early, late := n.request("ListVirtualHosts"), n.request("ListVirtualHosts")
		n.now = n.now.Add(-maxSkew - time.Second)
		if a := n.send(early); a.code() != "InvalidTimeStamp.Expired" {
			t.Errorf("from the future: %d %v", a.status, a.object)
		}
		n.now = n.now.Add(time.Second)
		if a := n.send(early); a.status != 200 {
			t.Errorf("at the beginning: %d %v", a.status, a.object)
		}
		for _, wait := range []time.Duration{0, maxSkew, maxSkew - time.Second} {
			n.now = n.now.Add(wait)
			if a := n.send(early); a.status != 400 || a.code() != "SignatureNonceUsed" {
				t.Errorf("again: %d %v", a.status, a.object)
			}
		}
		n.now = n.now.Add(time.Second)
		if a := n.send(late); a.status != 200 {
			t.Errorf("at the end: %d %v", a.status, a.object)
		}
		n.now = n.now.Add(time.Second)
		if a := n.send(early); a.code() != "InvalidTimeStamp.Expired" {
			t.Errorf("too late: %d %v", a.status, a.object)
		}
	}
}

// Who cannot sign uses up nobody's nonces.
func TestNoncesAreTakenByTheKeysOwnerOnly(t *testing.T) {
	n := start(t)
	bad := n.with(Key{ID: adminKey.ID, Secret: "a guess"})
	bad.nonce = n.nonce
	bad.refused(400, "SignatureDoesNotMatch", "ListVirtualHosts")
	n.must("ListVirtualHosts")
	other := n.with(adaKey)
	other.nonce = n.nonce - 1
	other.must("ListVirtualHosts") // the same nonce with another key
}

// Nonces take bounded memory: what is too much is refused, and room comes back.
func TestNoncesAreBounded(t *testing.T) {
	var n nonces
	now := time.Unix(0, 0)
	for i := range maxNonces {
		if err := n.use("k", strconv.Itoa(i), now); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := n.use("k", "one more", now); err != tooMany {
		t.Errorf("got %v, want %v", err, tooMany)
	}
	if err := n.use("another", "one more", now); err != nil {
		t.Errorf("another key has no room for what the first has used: %v", err)
	}
	if err := n.use("k", "one more", now.Add(2*maxSkew)); err != nil || len(n.used) != 1 || len(n.order) != 1 || len(n.of) != 1 {
		t.Errorf("later: %v, with %d remembered", err, len(n.used))
	}
}

// Guesses are answered late, and the answer says no more than that there were many.
func TestGuessesAreThrottled(t *testing.T) {
	n := start(t)
	var wrong int
	n.b.SetAccountRules(rulesOf(1, 300*time.Millisecond))
	bad := n.with(Key{ID: adminKey.ID, Secret: "a guess"})
	began := time.Now()
	for range 2 {
		if a := bad.do("ListVirtualHosts"); a.code() == "SignatureDoesNotMatch" {
			wrong++
		}
	}
	if took := time.Since(began); wrong != 2 || took < 200*time.Millisecond {
		t.Errorf("%d were refused within %s", wrong, took)
	}
	n.must("ListVirtualHosts") // who has the key is never held back
}
