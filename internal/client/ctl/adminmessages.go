package ctl

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"unicode/utf8"
)

var publishable = adminObject{
	mandatory: []string{"routing_key"}, json: []string{"properties"}, path: "/exchanges/{vhost}/{exchange}/publish",
	optional: []adminFlag{{"payload", nil}, {"properties", object{}}, {"exchange", "amq.default"}, {"payload_encoding", "string"}},
}

var gettable = adminObject{
	mandatory: []string{"queue"}, path: "/queues/{vhost}/{queue}/get",
	optional: []adminFlag{
		{"count", "1"}, {"ackmode", "ack_requeue_true"}, {"payload_file", nil}, {"encoding", "auto"},
		{"requeue", nil}, // RabbitMQ's before 3.7, in place of ackmode
	},
}

func (a *admin) publish() error {
	at, body, err := a.parse(&publishable, a.args)
	if err != nil {
		return err
	}
	payload, given := body["payload"].(string)
	if !given {
		input, err := io.ReadAll(a.in)
		if err != nil {
			return adminError("standard input: %v", err)
		}
		payload = string(input)
	}
	if !given || !utf8.ValidString(payload) { // text of JSON cannot carry other bytes
		body["payload"], body["payload_encoding"] = base64.StdEncoding.EncodeToString([]byte(payload)), "base64"
	}
	text, err := encode(body)
	if err != nil {
		return err
	}
	answer, err := a.send(http.MethodPost, at, []byte(text))
	if err != nil {
		return err
	}
	var reply struct{ Routed bool }
	if err := json.Unmarshal([]byte(answer), &reply); err != nil {
		return adminError("cannot read the answer: %v", err)
	}
	if reply.Routed {
		a.say("Message published")
	} else {
		a.say("Message published but NOT routed")
	}
	return nil
}

func (a *admin) get() error {
	at, body, err := a.parse(&gettable, a.args)
	if err != nil {
		return err
	}
	show, err := a.format()
	if err != nil {
		return err
	}
	if requeue, ok := body["requeue"].(string); ok {
		body["ackmode"] = "ack_requeue_" + requeue
		delete(body, "requeue")
	}
	file, _ := body["payload_file"].(string)
	if file != "" && body["count"] != "1" {
		return adminUsageError("Cannot get multiple messages using payload_file")
	}
	text, err := encode(body)
	if err != nil {
		return err
	}
	if file == "" {
		answer, err := a.send(http.MethodPost, at, []byte(text))
		if err != nil {
			return err
		}
		return show(&listing{}, answer)
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o644) // before a message is taken for it
	if err != nil {
		return adminError("%v", err)
	}
	answer, err := a.send(http.MethodPost, at, []byte(text))
	if err == nil {
		err = writePayload(out, answer)
	}
	if closed := out.Close(); err == nil && closed != nil {
		err = adminError("%v", closed)
	}
	if err != nil {
		return err
	}
	return show(&listing{columns: []string{"routing_key", "exchange", "message_count", "payload_bytes", "redelivered"}}, answer)
}

// writePayload replaces the content of a file by the payload of the one message of an answer.
func writePayload(file *os.File, answer string) error {
	var messages []struct {
		Payload  string
		Encoding string `json:"payload_encoding"`
	}
	if err := json.Unmarshal([]byte(answer), &messages); err != nil {
		return adminError("cannot read the answer: %v", err)
	}
	if len(messages) == 0 {
		return adminError("there is no message for %s: the queue is empty", file.Name())
	}
	payload := []byte(messages[0].Payload)
	if messages[0].Encoding == "base64" {
		var err error
		if payload, err = base64.StdEncoding.DecodeString(messages[0].Payload); err != nil {
			return adminError("cannot read the payload: %v", err)
		}
	}
	_, err := file.Write(payload)
	if err == nil {
		err = file.Truncate(int64(len(payload)))
	}
	if err != nil {
		return adminError("%v", err)
	}
	return nil
}
