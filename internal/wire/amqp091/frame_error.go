package amqp091

import (
	"strconv"
	"strings"
)

// A FrameError is a violation of the framing. It closes the connection (BR-4.8).
type FrameError struct {
	Code uint16 // CodeFrameError or CodeUnexpectedFrame
	Text string // without the code's name
}

// Error returns the reply-text.
func (e *FrameError) Error() string { return ReplyText(e.Code, e.Text) }

// frameError is the error for a frame that cannot be read; reason is an Erlang term.
func frameError(f Frame, reason string) error {
	return &FrameError{CodeFrameError, describePayload(f) + ": " + reason}
}

// badEnd is the error for a frame with another end octet. RabbitMQ's reason is cut in two lines where 80
// characters are too few for one.
func badEnd(f Frame, end byte) error {
	const tag, lineWidth = "{invalid_frame_end_marker,", 80
	column := len(describePayload(f)) + len(": ")
	value := strconv.Itoa(int(end)) + "}"
	if column+1+len(tag)+len(value) >= lineWidth {
		value = "\n" + strings.Repeat(" ", column+1) + value
	}
	return frameError(f, tag+value)
}

// unexpectedFrame is the error for a frame that has no place where it came.
func unexpectedFrame(f Frame) error {
	return &FrameError{CodeUnexpectedFrame, describePayload(f)}
}

// Undecodable is the text of the FrameError for arguments of a method that cannot be read.
// What no reply-text has room for is not printed.
func Undecodable(args []byte) string {
	return "cannot decode " + erlangOctets(args[:min(len(args), maxShortstr)])
}

// snippetSize is how much of a payload an error shows.
const snippetSize = 16

func describePayload(f Frame) string {
	text := "type " + strconv.Itoa(int(f.Type))
	payload := f.Payload
	if len(payload) > snippetSize {
		payload = payload[:snippetSize]
		text += ", first 16 octets = "
	} else {
		text += ", all octets = "
	}
	return text + erlangBinary(payload)
}

// erlangBinary prints b as Erlang's ~p does: <<"abc">> if all of it can be printed,
// else <<1,2,3>>. Erlang also prints Latin-1 letters; here they are numbers, since a
// reply-text has to be UTF-8.
func erlangBinary(b []byte) string {
	if len(b) == 0 {
		return "<<>>"
	}
	if quoted, ok := erlangString(b); ok {
		return "<<" + quoted + ">>"
	}
	return erlangOctets(b)
}

// erlangOctets prints b as Erlang's ~w does: <<1,2,3>>.
func erlangOctets(b []byte) string {
	dst := []byte("<<")
	for i, c := range b {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(c), 10)
	}
	return string(append(dst, ">>"...))
}

// erlangEscapes are the control characters Erlang counts as printable, and what is
// escaped inside its strings.
var erlangEscapes = map[byte]string{
	'\b': `\b`, '\t': `\t`, '\n': `\n`, '\v': `\v`, '\f': `\f`, '\r': `\r`, 0x1b: `\e`, '"': `\"`, '\\': `\\`,
}

func erlangString(b []byte) (string, bool) {
	dst := []byte{'"'}
	for _, c := range b {
		escape, special := erlangEscapes[c]
		switch {
		case special:
			dst = append(dst, escape...)
		case c >= ' ' && c <= '~':
			dst = append(dst, c)
		default:
			return "", false
		}
	}
	return string(append(dst, '"')), true
}
