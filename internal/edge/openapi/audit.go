package openapi

import (
	"log/slog"
	"net/http"
)

// objects are the parameters that name the changed object.
var objects = []string{"VirtualHost", "QueueName", "ExchangeName", "SourceExchange", "BindingType", "DestinationName", "BindingKey"}

// audit logs a request that changes something: user, address, object and result. It skips
// requests that only read, and requests without a valid signature.
func (c *call) audit(known action, refused *refusal) {
	if known.do == nil || !known.changes || c.who == nil {
		return
	}
	var object []any
	for _, name := range objects {
		if value := c.p[name]; value != "" {
			object = append(object, slog.String(name, value))
		}
	}
	status, result := http.StatusOK, "done"
	if refused != nil {
		status, result = refused.status, "refused"
		if status >= http.StatusInternalServerError {
			result = "failed"
		}
	}
	c.s.Audit.Info("administrative action", "user", c.who.Name, "peer", c.r.RemoteAddr, "method", c.r.Method, "resource", "openapi/"+c.action,
		slog.Group("object", object...), "result", result, "status", status, "request", c.id)
}
