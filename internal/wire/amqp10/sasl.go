package amqp10

import (
	"bytes"
	"errors"
	"unicode/utf8"
)

// SASL mechanisms whose responses are read here. They are names for sasl-mechanisms and sasl-init.
const (
	MechanismPlain     = "PLAIN"     // RFC 4616
	MechanismAnonymous = "ANONYMOUS" // RFC 4505
	MechanismExternal  = "EXTERNAL"  // RFC 4422, appendix A
)

// ErrResponse is a SASL response that its mechanism does not have.
var ErrResponse = errors.New("malformed SASL response")

// ParsePlain reads the response of PLAIN: [authzid] NUL authcid NUL passwd (RFC 4616, section 2). What it returns
// aliases the response. Errors are ErrResponse and ErrUTF8.
func ParsePlain(response []byte) (authzid, authcid, passwd []byte, err error) {
	authzid, rest, ok := bytes.Cut(response, []byte{0})
	authcid, passwd, ok2 := bytes.Cut(rest, []byte{0})
	if !ok || !ok2 || bytes.IndexByte(passwd, 0) >= 0 {
		return nil, nil, nil, ErrResponse
	}
	if !utf8.Valid(response) {
		return nil, nil, nil, ErrUTF8
	}
	return authzid, authcid, passwd, nil
}

// AppendPlain appends the response of PLAIN.
func AppendPlain(dst []byte, authzid, authcid, passwd string) []byte {
	dst = append(append(dst, authzid...), 0)
	dst = append(append(dst, authcid...), 0)
	return append(dst, passwd...)
}

// ParseAnonymous reads the response of ANONYMOUS: whatever the client wants to leave as a trace, at most 255
// characters (RFC 4505, section 2), or nothing. Errors are ErrResponse and ErrUTF8.
func ParseAnonymous(response []byte) (trace []byte, err error) {
	switch {
	case !utf8.Valid(response):
		return nil, ErrUTF8
	case utf8.RuneCount(response) > 255 || bytes.IndexByte(response, 0) >= 0:
		return nil, ErrResponse
	}
	return response, nil
}

// ParseExternal reads the response of EXTERNAL: the identity to act as, or nothing for the one that the
// certificate has (RFC 4422, appendix A.1). Errors are ErrResponse and ErrUTF8.
func ParseExternal(response []byte) (authzid []byte, err error) {
	switch {
	case !utf8.Valid(response):
		return nil, ErrUTF8
	case bytes.IndexByte(response, 0) >= 0:
		return nil, ErrResponse
	}
	return response, nil
}
