package definitions

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/erlterm"
)

// MalformedError means that a value has a wrong form (BR-15.2).
type MalformedError struct {
	Reason any // a text; or a list, the elements of a term that RabbitMQ prints
}

// Error returns the reason.
func (e *MalformedError) Error() string { return fmt.Sprint(e.Reason) }

// malformed takes a text, or the elements of a term.
func malformed(reason ...any) error {
	if len(reason) == 1 {
		return &MalformedError{reason[0]}
	}
	return &MalformedError{reason}
}

// The components of parameters with a meaning: for RabbitMQ operator policies and limits of
// virtual hosts are parameters (BR-16.2).
const (
	OperatorPolicyComponent = "operator_policy"
	VHostLimitsComponent    = "vhost-limits"
)

// NotJSON is the refusal of a text that topology.ParseJSON could not read: RabbitMQ's reason, or
// the exceeded limit if RabbitMQ has no such limit.
func NotJSON(err error, reason string) error {
	var number *topology.NumberError
	if errors.As(err, &number) {
		return malformed(number.Error())
	}
	var bound *topology.JSONBoundError
	if errors.As(err, &bound) {
		return malformed(bound.Error())
	}
	return malformed(reason)
}

// SyntaxError says where a text is not JSON; "" if it is JSON.
func SyntaxError(text []byte) string {
	var v any
	var wrong *json.SyntaxError
	if !errors.As(json.Unmarshal(text, &v), &wrong) {
		return ""
	}
	before := text[:min(max(wrong.Offset-1, 0), int64(len(text)))] // the offset is behind the byte
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Sprintf(": line %d, column %d: %v", line, column, wrong)
}

// Boolean reads a boolean, which may be text (BR-15.5).
func Boolean(v any) (bool, error) {
	switch v {
	case true, "true":
		return true, nil
	case false, "false":
		return false, nil
	}
	return false, malformed("not_boolean", v)
}

// Flag is a boolean of an object and its destination.
type Flag struct {
	Key string
	To  *bool
}

// Flags reads optional booleans.
func Flags(o map[string]any, list ...Flag) (err error) {
	for _, f := range list {
		if value, ok := o[f.Key]; ok {
			if *f.To, err = Boolean(value); err != nil {
				return err
			}
		}
	}
	return nil
}

// Object reads an optional object; like RabbitMQ it accepts an empty list as an empty object. A refusal
// names the key.
func Object(v any, key string) (map[string]any, error) {
	switch v := v.(type) {
	case nil:
		return map[string]any{}, nil
	case map[string]any:
		return v, nil
	case []any:
		if len(v) == 0 {
			return map[string]any{}, nil
		}
	}
	return nil, malformed(fmt.Sprintf("%s must be an object", key))
}

// Tags reads tags, written as a list or as one text with commas (BR-16.6).
func Tags(v any) ([]string, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		return auth.ParseTags(v), nil
	case []any:
		tags := make([]string, 0, len(v))
		for _, t := range v {
			text, ok := t.(string)
			if !ok {
				return nil, malformed("not_string", t)
			}
			tags = append(tags, strings.TrimSpace(text))
		}
		return tags, nil
	}
	return nil, malformed("not_string", v)
}

// Password reads the password of a user's object. Without one the user cannot log in with a
// password (BR-15.9).
func Password(b *broker.Broker, body map[string]any) (auth.PasswordHash, error) {
	password, hasPassword := body["password"]
	hash, hasHash := body["password_hash"]
	switch {
	case hasPassword && hasHash:
		return auth.PasswordHash{}, malformed("both_password_and_password_hash_are_provided")
	case hasPassword:
		text, ok := password.(string)
		if !ok {
			return auth.PasswordHash{}, malformed("not_string", password)
		}
		return b.HashPassword(text)
	case hasHash && hash != nil:
		text, ok := hash.(string)
		if !ok {
			return auth.PasswordHash{}, malformed("not_string", hash)
		}
		algorithm, _ := body["hashing_algorithm"].(string)
		if _, err := base64.StdEncoding.DecodeString(text); err != nil && auth.Algorithm(algorithm) != auth.Argon2id {
			if b.Strict {
				return auth.PasswordHash{}, malformed("not_base64", text)
			}
			return auth.PasswordHash{}, malformed(fmt.Sprintf("not_base64: the password_hash '%s' is not base64", text))
		}
		imported, err := auth.ImportHash(text, auth.Algorithm(algorithm))
		if err != nil && b.Strict && message.CheckName("hashing_algorithm", algorithm) == nil { // RabbitMQ keeps it, and lets nobody in by it
			return auth.PasswordHash{Hash: text, Algorithm: auth.Algorithm(algorithm)}, nil
		}
		return imported, err
	}
	return auth.ImportHash("", "")
}

// Policy reads a policy's object. It checks types; topology checks the values (DL-4.3).
func Policy(name string, body map[string]any) (d topology.PolicyDecl, err error) {
	d = topology.PolicyDecl{Name: name, Priority: body["priority"]}
	var ok bool
	if d.Pattern, ok = body["pattern"].(string); !ok {
		return d, malformed("Validation failed\n\npattern should be a binary but was " + erlterm.Format(body["pattern"]) + "\n")
	}
	definition, err := Object(body["definition"], "definition")
	if err != nil {
		return d, err
	}
	d.Definition = definition
	if v, given := body["apply-to"]; given {
		text, ok := v.(string)
		if !ok {
			return d, malformed("not_string", v)
		}
		d.ApplyTo = topology.ApplyTo(text)
	}
	return d, nil
}

// SetVHostLimits replaces all limits of a virtual host by the limits of a JSON object.
func SetVHostLimits(b broker.Admin, name message.VHost, value any) error {
	limits, err := Object(value, "value")
	if err != nil {
		return err
	}
	_, err = b.Do(declare.SetVHostLimits{Name: name, Limits: Limits[topology.Limit](limits), Only: true})
	return err
}

// Limits returns the values of an object of limits.
func Limits[L ~string](object map[string]any) map[L]any {
	limits := make(map[L]any, len(object))
	for name, value := range object {
		limits[L(name)] = value
	}
	return limits
}

// Encode returns the stored form of a parameter's value.
func Encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, malformed("not_json")
	}
	return text, nil
}
