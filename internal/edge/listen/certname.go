package listen

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf16"
)

// CertLogin says which part of a client's certificate is its user's name (BR-2.3).
type CertLogin struct {
	From     string // distinguished_name, common_name or subject_alternative_name
	SANType  string // dns, ip, email, uri or other_name
	SANIndex int    // which of that type, from 0
}

// User is the name that a certificate gives its holder, written as RabbitMQ writes it.
// ok is false where it has none. REQUIRES: the certificate was verified.
func (l CertLogin) User(cert *x509.Certificate) (name string, ok bool) {
	switch l.From {
	case "distinguished_name":
		name = SubjectName(cert)
	case "common_name":
		name = commonNames(cert)
	case "subject_alternative_name":
		name = l.alternativeName(cert)
	}
	return name, name != ""
}

// attribute is a part of a name, its text still in the encoding it came in.
type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

type attributeSET []attribute // the name makes encoding/asn1 read a SET

// takeApart takes a name apart; nil if it is malformed, which ParseCertificate does
// not let pass.
func takeApart(name []byte) (rdns []attributeSET) {
	if rest, err := asn1.Unmarshal(name, &rdns); err != nil || len(rest) > 0 {
		return nil
	}
	return rdns
}

// SubjectName writes a certificate's subject as RFC 4514 does and RabbitMQ with it: the
// last part first, known types by name.
func SubjectName(cert *x509.Certificate) string { return write(cert.RawSubject) }

// IssuerName likewise writes who signed a certificate.
func IssuerName(cert *x509.Certificate) string { return write(cert.RawIssuer) }

func write(name []byte) string {
	var parts []string
	for _, rdn := range slices.Backward(takeApart(name)) {
		var b strings.Builder
		for i, a := range rdn {
			if i > 0 {
				b.WriteByte('+')
			}
			b.WriteString(typeName(a.Type))
			b.WriteByte('=')
			escape(&b, directoryString(a.Value))
		}
		parts = append(parts, b.String())
	}
	return strings.Join(parts, ",")
}

// commonNames are all CNs of a subject, with commas between where there are several.
func commonNames(cert *x509.Certificate) string {
	var names []string
	for _, rdn := range takeApart(cert.RawSubject) {
		for _, a := range rdn {
			if typeName(a.Type) == "CN" {
				names = append(names, directoryString(a.Value))
			}
		}
	}
	return strings.Join(names, ",")
}

// typeName is the short name of a type, or its number.
func typeName(id asn1.ObjectIdentifier) string {
	dotted := id.String()
	if name, known := typeNames[dotted]; known {
		return name
	}
	return dotted
}

var typeNames = map[string]string{
	"2.5.4.3": "CN", "2.5.4.4": "SN", "2.5.4.5": "SERIALNUMBER", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET",
	"2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.12": "TITLE", "2.5.4.42": "GIVENNAME", "2.5.4.43": "INITIALS",
	"2.5.4.44": "GENERATIONQUALIFIER", "2.5.4.65": "PSEUDONYM", "0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
	"1.2.840.113549.1.9.1": "EMAILADDRESS",
}

// directoryString reads a text in any of the encodings that names come in, as UTF-8.
func directoryString(v asn1.RawValue) string {
	const teletex, universal, bmp = 20, 28, 30
	switch v.Tag {
	case teletex: // of which nobody knows more than that it is mostly Latin-1
		runes := make([]rune, len(v.Bytes))
		for i, c := range v.Bytes {
			runes[i] = rune(c)
		}
		return string(runes)
	case bmp:
		var units []uint16
		for i := 0; i+1 < len(v.Bytes); i += 2 {
			units = append(units, uint16(v.Bytes[i])<<8|uint16(v.Bytes[i+1]))
		}
		return string(utf16.Decode(units))
	case universal:
		var runes []rune
		for i := 0; i+3 < len(v.Bytes); i += 4 {
			runes = append(runes, rune(v.Bytes[i])<<24|rune(v.Bytes[i+1])<<16|rune(v.Bytes[i+2])<<8|rune(v.Bytes[i+3]))
		}
		return string(runes)
	}
	return string(v.Bytes)
}

// escape writes a value so that none of it can be taken for another part of the name.
func escape(b *strings.Builder, value string) {
	for i := range len(value) {
		c := value[i]
		switch {
		case i == 0 && (c == ' ' || c == '#'), i == len(value)-1 && c == ' ', strings.IndexByte(`"+,;<>\`, c) >= 0:
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 32 || c >= 126:
			fmt.Fprintf(b, `\%02X`, c)
		default:
			b.WriteByte(c)
		}
	}
}

// Tags of the kinds of alternative names (RFC 5280, section 4.2.1.6).
var sanTags = map[string]int{"other_name": 0, "email": 1, "dns": 2, "uri": 6, "ip": 7}

var subjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

// alternativeName is the one chosen among the alternative names of its type.
func (l CertLogin) alternativeName(cert *x509.Certificate) string {
	tag, known := sanTags[l.SANType]
	at := slices.IndexFunc(cert.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(subjectAltName) })
	if !known || at < 0 {
		return ""
	}
	var names []asn1.RawValue
	if _, err := asn1.Unmarshal(cert.Extensions[at].Value, &names); err != nil {
		return ""
	}
	names = slices.DeleteFunc(names, func(v asn1.RawValue) bool { return v.Class != asn1.ClassContextSpecific || v.Tag != tag })
	if l.SANIndex >= len(names) {
		return ""
	}
	value := names[l.SANIndex].Bytes
	switch l.SANType {
	case "ip":
		if a, ok := netip.AddrFromSlice(value); ok {
			return a.String()
		}
		return ""
	case "other_name":
		return otherName(value)
	}
	return string(value)
}

// otherName is the text of a name of a type of its own, whatever that is.
func otherName(der []byte) string {
	var id asn1.ObjectIdentifier
	rest, err := asn1.Unmarshal(der, &id)
	if err != nil {
		return ""
	}
	var explicit, inner asn1.RawValue
	if _, err := asn1.Unmarshal(rest, &explicit); err != nil {
		return ""
	}
	if _, err := asn1.Unmarshal(explicit.Bytes, &inner); err != nil {
		return ""
	}
	return directoryString(inner)
}
