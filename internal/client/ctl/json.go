package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
)

// parseJSON reads a JSON document from the command line. Shells of Windows remove the
// quotes from '{"a":"b"}'; parseJSON also reads the remaining text.
func parseJSON(text string) (any, error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return v, nil
		}
	}
	if v, ok := parseUnquoted(text); ok {
		return v, nil
	}
	return nil, fail(exitUnavailable, "Could not parse JSON document: {error,{failed_to_decode_json,<<%q>>}}", text)
}

// parseUnquoted reads a flat object whose quotes a shell has removed, such as
// {dead-letter-exchange:my-dlx,message-ttl:60000}, with or without single quotes around
// it. It refuses text that still has a double quote.
func parseUnquoted(text string) (object, bool) {
	text = strings.TrimSpace(text)
	if inner, ok := strings.CutPrefix(text, "'"); ok {
		if text, ok = strings.CutSuffix(inner, "'"); !ok {
			return nil, false
		}
	}
	if strings.ContainsAny(text, `"[`) || !strings.HasPrefix(text, "{") || !strings.HasSuffix(text, "}") {
		return nil, false
	}
	o := object{}
	for pair := range strings.SplitSeq(text[1:len(text)-1], ",") {
		key, value, ok := strings.Cut(pair, ":")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok || key == "" || strings.ContainsAny(key+value, "{}") {
			return nil, false
		}
		o[key] = bareValue(value)
	}
	return o, true
}

// bareValue reads a value that has no quotes: a number or boolean if it looks like one.
func bareValue(text string) any {
	if _, err := strconv.ParseFloat(text, 64); err == nil && json.Valid([]byte(text)) {
		return json.Number(text)
	}
	switch text {
	case "true":
		return true
	case "false":
		return false
	}
	return text
}
