package openapi

import (
	"strconv"
	"strings"

	"bartleby.mq/internal/core/message"
)

// fields reads the parameters of an action. After the first invalid parameter err says why,
// and later results are meaningless. An empty value counts as missing, as in Alibaba's
// clients.
type fields struct {
	p   parameters
	err *refusal
}

func (c *call) fields() *fields { return &fields{p: c.p} }

// refuse notes the first error.
func (f *fields) refuse(r *refusal) {
	if f.err == nil {
		f.err = r
	}
}

// required is a mandatory text.
func (f *fields) required(parameter string) string {
	value := f.p[parameter]
	if value == "" {
		f.refuse(missing(parameter))
	}
	return value
}

// flag is an optional boolean; Python's clients write it with a capital.
func (f *fields) flag(parameter string) bool {
	switch value := f.p[parameter]; strings.ToLower(value) {
	case "true":
		return true
	case "false", "":
	default:
		f.refuse(invalid(parameter, "It is neither true nor false."))
	}
	return false
}

// integer is an optional integer from least to most.
func (f *fields) integer(parameter string, least, most int64) (n int64, given bool) {
	value := f.p[parameter]
	if value == "" {
		return 0, false
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < least || n > most {
		f.refuse(invalid(parameter, "It is not an integer from "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10)+"."))
	}
	return n, true
}

// vhost is the virtual host of the request.
func (f *fields) vhost() message.VHost { return message.VHost(f.required("VirtualHost")) }

// newName is the name of a new object (DL-22.13).
func (f *fields) newName(parameter string) string {
	name := f.required(parameter)
	if name != "" && !validName(name) {
		f.refuse(invalid(parameter, nameRule))
	}
	return name
}

// unreserved is newName without the names that are reserved for the broker (DL-22.13).
func (f *fields) unreserved(parameter string) string {
	name := f.newName(parameter)
	if strings.HasPrefix(name, reservedPrefix) {
		f.refuse(invalid(parameter, "Names that begin with amq. are reserved."))
	}
	return name
}

// optionalName is an optional name or key (DL-22.13).
func (f *fields) optionalName(parameter string) (name string, given bool) {
	if name = f.p[parameter]; name == "" {
		return "", false
	}
	if !validName(name) {
		f.refuse(invalid(parameter, nameRule))
	}
	return name, true
}
