package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"bartleby.mq/internal/run/office"
)

// webhookRoutes are the resources of webhooks (docs/internals/office.md).
func (s *server) webhookRoutes() []route {
	if s.Office == nil {
		return nil
	}
	return []route{
		{"GET", "office/webhooks", administers, s.listWebhooks},
		{"GET", "office/webhooks/{name}", administers, s.getWebhook},
		{"PUT", "office/webhooks/{name}", administers, s.putWebhook},
		{"DELETE", "office/webhooks/{name}", administers, s.deleteWebhook},
		{"POST", "office/webhooks/{name}/test", administers, s.testWebhook},
	}
}

func (s *server) listWebhooks(*request) (any, error) { return s.Office.Webhooks.List(), nil }

func (s *server) getWebhook(r *request) (any, error) {
	w, err := s.Office.Webhooks.Webhook(r.params["name"])
	if err != nil {
		return nil, asJobFailure(err)
	}
	return w, nil
}

// putWebhook makes or changes a webhook. What is not in the body stays as it was; a new one is on.
func (s *server) putWebhook(r *request) (any, error) {
	var body map[string]json.RawMessage
	if err := json.Unmarshal(r.raw, &body); err != nil {
		return nil, badRequest("the body must be a JSON object")
	}
	for _, key := range office.WebhookFacts {
		delete(body, key)
	}
	rest, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	w := office.Webhook{On: true}
	if was, err := s.Office.Webhooks.Webhook(r.params["name"]); err == nil {
		w = office.Webhook{URL: was.URL, Events: was.Events, VHost: was.VHost, On: was.On}
	}
	d := json.NewDecoder(bytes.NewReader(rest))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return nil, badRequest("webhook: " + strings.TrimPrefix(err.Error(), "json: "))
	}
	if w.Name != "" && w.Name != r.params["name"] {
		return nil, badRequest(fmt.Sprintf("name '%s' is not that of the address, '%s'", w.Name, r.params["name"]))
	}
	w.Name = r.params["name"]
	shown, created, err := s.Office.Webhooks.Put(w, r.actor())
	if err != nil {
		return nil, asJobFailure(err)
	}
	// An address may contain a token.
	r.did = []any{slog.Group("webhook", "name", shown.Name, "events", strings.Join(slices.Sorted(slices.Values(shown.Events)), " "), "vhost", shown.VHost, "on", shown.On)}
	if created {
		return withStatus{http.StatusCreated, shown}, nil
	}
	return shown, nil
}

func (s *server) deleteWebhook(r *request) (any, error) {
	if err := s.Office.Webhooks.Remove(r.params["name"], r.actor()); err != nil {
		return nil, asJobFailure(err)
	}
	return nil, nil
}

// testWebhook tells a webhook of an event webhook.test. If it is not delivered that is a failure with the status 502.
func (s *server) testWebhook(r *request) (any, error) {
	t, err := s.Office.Webhooks.Test(r.Context(), r.params["name"], r.actor())
	switch {
	case err != nil:
		return nil, asJobFailure(err)
	case !t.Delivered:
		return nil, &failure{http.StatusBadGateway, "not_delivered", t.Error}
	}
	return t, nil
}
