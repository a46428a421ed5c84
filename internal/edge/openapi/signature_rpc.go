package openapi

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
)

// rpcSignature reads a signature of version 1, the RPC style's: HMAC-SHA1 over all
// parameters, sorted by name (DL-22.17).
func rpcSignature(method string, p parameters) (signature, *refusal) {
	s := signature{
		action: p["Action"], version: p["Version"], key: p["AccessKeyId"], nonce: p["SignatureNonce"], at: p["Timestamp"],
		given: p["Signature"], text: rpcText(method, p), sign: signSHA1,
	}
	switch {
	case p["Format"] != "" && !strings.EqualFold(p["Format"], "JSON"):
		return s, badFormat
	case p["SignatureMethod"] != "" && p["SignatureMethod"] != "HMAC-SHA1":
		return s, invalid("SignatureMethod")
	case p["SignatureVersion"] != "" && p["SignatureVersion"] != "1.0":
		return s, invalid("SignatureVersion")
	}
	return s, s.check()
}

// rpcText is the signed text: the method, the path, and the parameters without the
// signature, each encoded once and all of them once more.
func rpcText(method string, p parameters) string {
	return method + "&" + percentEncode("/") + "&" + percentEncode(canonicalQuery(p, "Signature"))
}

// canonicalQuery writes parameters in the order of their names, without one of them.
func canonicalQuery(p parameters, without string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if name == without {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('&')
		}
		b.WriteString(percentEncode(name) + "=" + percentEncode(p[name]))
	}
	return b.String()
}

func signSHA1(secret, text string) string {
	h := hmac.New(sha1.New, []byte(secret+"&"))
	h.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}
