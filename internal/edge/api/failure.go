package api

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/definitions"
)

// failure is a refusal as the client sees it (BR-15.2): a status and the body
// {"error":kind,"reason":reason}. reason is mostly text; where RabbitMQ prints a
// term it is a list.
type failure struct {
	status int
	kind   string
	reason any
}

// Error returns the reason.
func (f *failure) Error() string { return fmt.Sprint(f.reason) }

var (
	notFound      = &failure{http.StatusNotFound, "Object Not Found", "Not Found"}
	notVisible    = &failure{http.StatusNotFound, "not_found", "Not Found"}
	vhostMissing  = &failure{http.StatusNotFound, "not_found", "vhost_not_found"}
	wrongPassword = &failure{http.StatusUnauthorized, "not_authorized", "Not_Authorized"}
	accessRefused = notAuthorised("Access refused.")
	wrongType     = &failure{http.StatusUnsupportedMediaType, "bad_request", "the body must be application/json"}
	// Of these RabbitMQ answers the status alone. crashed is what RabbitMQ answers when it fails: a status without a body.
	crashed         = &failure{status: http.StatusInternalServerError}
	unsupportedType = &failure{status: http.StatusUnsupportedMediaType}
	noCredentials   = &failure{status: http.StatusUnauthorized}
	bodyTooLarge    = &failure{http.StatusRequestEntityTooLarge, "bad_request", "Exceeded HTTP request body size limit"}
)

func notAuthorised(reason string) *failure {
	return &failure{http.StatusUnauthorized, "not_authorised", reason}
}

// badRequest takes a text, or the elements of a term that RabbitMQ prints as a list.
func badRequest(reason ...any) *failure {
	if len(reason) == 1 {
		return &failure{http.StatusBadRequest, "bad_request", reason[0]}
	}
	return &failure{http.StatusBadRequest, "bad_request", reason}
}

// asFailure translates an error of the broker.
func asFailure(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	var malformed *definitions.MalformedError
	if errors.As(err, &malformed) {
		return badRequest(malformed.Reason)
	}
	var filter *letter.QueryError
	if errors.As(err, &filter) {
		return badRequest(filter.Error())
	}
	var refusal *topology.Error
	if !errors.As(err, &refusal) {
		return &failure{http.StatusInternalServerError, "internal_error", "see the log of the broker"}
	}
	switch refusal.Kind {
	case topology.NotFound:
		return &failure{http.StatusNotFound, "not_found", refusal.Text}
	case topology.AccessRefused, topology.NotAllowed:
		return accessRefused
	case topology.Protected:
		return &failure{http.StatusPreconditionFailed, "precondition_failed", refusal.Text}
	}
	return badRequest(refusal.Text)
}

// lineWidth is the width at which RabbitMQ's printer of terms begins a new line.
const lineWidth = 80

// missingKeys is the refusal of a body that lacks some of the mandatory keys, nil if it
// has all.
func missingKeys(body map[string]any, keys ...string) error {
	var missing []string
	length := 1
	for _, k := range keys {
		if _, ok := body[k]; !ok {
			missing = append(missing, "{key_missing,"+k+"}")
			length += len(missing[len(missing)-1]) + 1
		}
	}
	if missing == nil {
		return nil
	}
	separator := ","
	if length > lineWidth {
		separator = ",\n "
	}
	return badRequest("[" + strings.Join(missing, separator) + "]")
}

// asFailureOrNil is asFailure where there may be no error.
func asFailureOrNil(err error) *failure {
	if err == nil {
		return nil
	}
	return asFailure(err)
}
