package openapi

import (
	"crypto/subtle"
	"errors"
	"net/url"
	"strings"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/run/broker"
)

// maxSkew is how far a request's time may be from ours, either way.
const maxSkew = 15 * time.Minute

// maxKeyID is the maximal length of an access key's ID, in bytes.
const maxKeyID = 128

// timeLayout is ISO 8601 in UTC.
const timeLayout = "2006-01-02T15:04:05Z"

// signature is the signature of a request, in either style.
type signature struct {
	action, version string
	key             string // the access key's ID
	nonce           string
	at              string
	given           string // the client's signature
	text            string // the text to be signed
	// sign signs the text with a secret, as the client should have done.
	sign func(secret, text string) string
}

// signature reads the request's signature: version 3 from its headers, or version 1 from
// its parameters.
func (c *call) signature(body []byte) (s signature, err *refusal) {
	if authorization := c.r.Header.Get("Authorization"); strings.HasPrefix(authorization, acs3Prefix) {
		return acs3Signature(c.r, authorization, body)
	}
	return rpcSignature(c.r.Method, c.p)
}

// check refuses an incomplete signature.
func (s *signature) check() *refusal {
	for _, part := range []struct{ name, value string }{
		{"Action", s.action}, {"AccessKeyId", s.key}, {"Signature", s.given}, {"SignatureNonce", s.nonce}, {"Timestamp", s.at},
	} {
		if part.value == "" {
			return missing(part.name)
		}
	}
	return nil
}

// authenticate finds the user who has signed the request. It takes the nonce only if the
// signature is right, so that no other client can use it up.
func (c *call) authenticate(s signature) *refusal {
	if len(s.key) > maxKeyID {
		return noKey
	}
	now := c.s.Now()
	at, err := time.Parse(timeLayout, s.at)
	switch {
	case err != nil:
		return badTime
	case at.Before(now.Add(-maxSkew)) || at.After(now.Add(maxSkew)):
		return expired
	}
	refused := tooMany // unless prove is called
	c.who, err = c.s.b.AuthenticateKey(c.r.Context(), s.key, c.peer().AsSlice(), func() (user string, err error) {
		user, refused = c.prove(s)
		if refused != nil {
			return "", &auth.LoginError{User: s.key, Reason: refused.code}
		}
		return user, nil
	})
	c.s.b.Totals.Logins[broker.LoginHTTP].Note(err == nil)
	if err != nil {
		c.s.Logger.Warn("OpenAPI login refused", "peer", c.r.RemoteAddr, "request", c.id, "error", err)
		var wrong *auth.LoginError
		switch {
		case refused != nil:
			return refused
		case errors.As(err, &wrong):
			return forbidden // the key is right; its user is gone, or may not log in from there
		}
		return internalError
	}
	if refused := c.s.nonces.use(s.key, s.nonce, now); refused != nil {
		return refused
	}
	c.visible = c.s.b.VisibilityOf(c.who, c.peer())
	if !c.s.Known(c.r.Context(), c.who.Name) {
		return noRoom
	}
	return nil
}

// prove returns the user of the key that has signed the request.
func (c *call) prove(s signature) (user string, err *refusal) {
	key, ok := c.access.find(s.key)
	if !ok {
		return "", noKey
	}
	if want := s.sign(key.Secret, s.text); subtle.ConstantTimeCompare([]byte(want), []byte(s.given)) != 1 {
		return "", mismatch(s.text)
	}
	return key.User, nil
}

// percentEncode encodes by RFC 3986: all but letters, digits and - _ . ~.
func percentEncode(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }
