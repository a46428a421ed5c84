package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// management is the HTTP API of a broker.
type management struct {
	base        string
	credentials string // an AMQP address holding them
	timeout     time.Duration
}

// call sends a request below /api and returns the status and the decoded reply.
func (m *management) call(method, path string, content any) (int, any, error) {
	var body io.Reader
	if content != nil {
		text, err := json.Marshal(content)
		if err != nil {
			return 0, nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequest(method, strings.TrimSuffix(m.base, "/")+"/api"+path, body)
	if err != nil {
		return 0, nil, err
	}
	if u, err := url.Parse(m.credentials); err == nil && u.User != nil {
		password, _ := u.User.Password()
		req.SetBasicAuth(u.User.Username(), password)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Timeout: m.timeout}).Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err
	}
	var reply any
	_ = json.Unmarshal(text, &reply) // many replies have no content
	return resp.StatusCode, reply, nil
}

// must is call for requests whose refusal ends the scenario.
func (m *management) must(method, path string, content any) error {
	status, reply, err := m.call(method, path, content)
	if err == nil && status >= 300 {
		err = fmt.Errorf("%s %s: %d %v", method, path, status, reply)
	}
	return err
}

func (m *management) createVhost(vhost string) error {
	if err := m.must("PUT", "/vhosts/"+vhost, map[string]any{}); err != nil {
		return err
	}
	u, err := url.Parse(m.credentials)
	if err != nil {
		return err
	}
	return m.must("PUT", "/permissions/"+vhost+"/"+url.PathEscape(u.User.Username()),
		map[string]any{"configure": ".*", "write": ".*", "read": ".*"})
}

func (m *management) deleteVhost(vhost string) error {
	return m.must("DELETE", "/vhosts/"+vhost, nil)
}

// showJSON writes a decoded value on one line, its keys sorted.
func showJSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return strings.TrimSpace(b.String())
}
