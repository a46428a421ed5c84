package openapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
)

// The headers of a request with a signature of version 3.
const (
	actionHeader  = "X-Acs-Action"
	versionHeader = "X-Acs-Version"
	dateHeader    = "X-Acs-Date"
	nonceHeader   = "X-Acs-Signature-Nonce"
	hashHeader    = "X-Acs-Content-Sha256"
)

const (
	acs3Prefix = "ACS3-" // of all its algorithms
	acs3       = "ACS3-HMAC-SHA256"
)

// acs3Signature reads a signature of version 3: HMAC-SHA256 over method, path, query,
// headers and the body's hash. The action is in headers.
func acs3Signature(r *http.Request, authorization string, body []byte) (signature, *refusal) {
	a, ok := parseAuthorization(authorization)
	if !ok {
		return signature{}, badAuthorization
	}
	if a.algorithm != acs3 {
		return signature{}, invalid("SignatureMethod")
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	if r.Header.Get(hashHeader) != hash {
		return signature{}, invalid("ContentSha256", "It does not match the body.")
	}
	if !a.covers(r.Header) {
		return signature{}, badAuthorization
	}
	s := signature{
		action: r.Header.Get(actionHeader), version: r.Header.Get(versionHeader), key: a.key,
		nonce: r.Header.Get(nonceHeader), at: r.Header.Get(dateHeader), given: a.signature, sign: signSHA256,
	}
	request, refused := canonicalRequest(r, a.headers, hash)
	if refused != nil {
		return s, refused
	}
	hashed := sha256.Sum256([]byte(request))
	s.text = acs3 + "\n" + hex.EncodeToString(hashed[:])
	return s, s.check()
}

// authorization is the content of the header Authorization.
type authorization struct {
	algorithm string
	key       string   // the access key's ID
	headers   []string // the signed headers, in lower case
	signature string   // in hexadecimal
}

// parseAuthorization reads a header such as
//
//	ACS3-HMAC-SHA256 Credential=ID,SignedHeaders=host;x-acs-action,Signature=06563a
func parseAuthorization(header string) (a authorization, ok bool) {
	algorithm, rest, _ := strings.Cut(header, " ")
	a.algorithm = algorithm
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			a.key = value
		case "SignedHeaders":
			a.headers = strings.Split(value, ";")
		case "Signature":
			a.signature = value
		default:
			return a, false
		}
	}
	return a, a.key != "" && len(a.headers) > 0 && a.signature != ""
}

// covers says whether all headers with a meaning are signed, and none twice: anybody could
// have added an unsigned header.
func (a *authorization) covers(h http.Header) bool {
	if !slices.Contains(a.headers, "host") {
		return false
	}
	for name := range h {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-acs-") && !slices.Contains(a.headers, name) {
			return false
		}
	}
	return slices.IsSorted(a.headers) && len(slices.Compact(slices.Clone(a.headers))) == len(a.headers)
}

// canonicalRequest is the form of the request that is signed.
func canonicalRequest(r *http.Request, headers []string, bodyHash string) (string, *refusal) {
	query := parameters{}
	if err := query.add(r.URL.RawQuery); err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(r.Method + "\n/\n" + canonicalQuery(query, "") + "\n")
	for _, name := range headers {
		values := slices.Clone(r.Header.Values(name))
		if name == "host" {
			values = []string{r.Host}
		}
		for i, v := range values {
			values[i] = strings.TrimSpace(v)
		}
		slices.Sort(values)
		b.WriteString(name + ":" + strings.Join(values, ",") + "\n")
	}
	b.WriteString("\n" + strings.Join(headers, ";") + "\n" + bodyHash)
	return b.String(), nil
}

func signSHA256(secret, text string) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(text))
	return hex.EncodeToString(h.Sum(nil))
}
