package openapi

import (
	"errors"
	"net/http"

	"bartleby.mq/internal/core/topology"
)

// refusal is an error in the form of Alibaba's gateway: an HTTP status, a code for
// programs and a message for people.
type refusal struct {
	status  int
	code    string
	message string
}

// Error returns the code and the message.
func (r *refusal) Error() string { return r.code + ": " + r.message }

// The gateway's own refusals.
var (
	badMethod        = &refusal{http.StatusBadRequest, "UnsupportedHTTPMethod", "This http method is not supported."}
	noAction         = &refusal{http.StatusNotFound, "InvalidAction.NotFound", "Specified api is not found, please check your url and method."}
	noRoom           = &refusal{http.StatusServiceUnavailable, "Throttling", "Request was denied due to request throttling."}
	badFormat        = &refusal{http.StatusBadRequest, "InvalidParameter.Format", "Specified parameter format is not valid."}
	badParameters    = &refusal{http.StatusBadRequest, "InvalidParameter", "The parameters of the request cannot be read."}
	tooManyBytes     = &refusal{http.StatusRequestEntityTooLarge, "InvalidParameter.TooLarge", "The request is too large."}
	noKey            = &refusal{http.StatusNotFound, "InvalidAccessKeyId.NotFound", "Specified access key is not found."}
	badTime          = &refusal{http.StatusBadRequest, "InvalidTimeStamp.Format", "Specified time stamp or date value is not well formatted."}
	expired          = &refusal{http.StatusBadRequest, "InvalidTimeStamp.Expired", "Specified time stamp or date value is expired."}
	badAuthorization = &refusal{http.StatusBadRequest, "IncompleteSignature", "The request signature does not conform to Aliyun standards."}
	nonceUsed        = &refusal{http.StatusBadRequest, "SignatureNonceUsed", "Specified signature nonce was used already."}
	tooMany          = &refusal{http.StatusBadRequest, "Throttling.User", "Request was denied due to user flow control."}
	forbidden        = &refusal{http.StatusForbidden, "Forbidden.RAM", "User not authorized to operate on the specified resource, or this API doesn't support RAM."}
	internalError    = &refusal{http.StatusInternalServerError, "InternalError", "The request processing has failed due to some unknown error, exception or failure."}
)

// Missing and remaining objects, with names in the style of DL-22.15.
var (
	noInstance = &refusal{http.StatusNotFound, "InstanceNotExist", "The specified instance does not exist."}
	noVHost    = &refusal{http.StatusNotFound, "VhostNotExist", "The specified vhost does not exist."}
	noQueue    = &refusal{http.StatusNotFound, "QueueNotExist", "The specified queue does not exist."}
	noExchange = &refusal{http.StatusNotFound, "ExchangeNotExist", "The specified exchange does not exist."}
	notEmpty   = &refusal{http.StatusBadRequest, "VhostNotEmpty", "The vhost has exchanges or queues: delete them first."}
	noBinding  = &refusal{http.StatusNotFound, "BindingNotExist", "The specified binding does not exist."}
)

// missing is the refusal of a request without a mandatory parameter.
func missing(parameter string) *refusal {
	return &refusal{http.StatusBadRequest, "Missing" + parameter, parameter + " is mandatory for this action."}
}

// invalid is the refusal of a parameter's value; because, if given, is the reason.
func invalid(parameter string, because ...string) *refusal {
	r := &refusal{http.StatusBadRequest, "Invalid" + parameter, "Specified parameter " + parameter + " is not valid."}
	for _, text := range because {
		r.message += " " + text
	}
	return r
}

// mismatch is the refusal of a wrong signature. It contains the text to be signed, so that
// clients can find their mistakes; the text comes from the request, so this reveals nothing.
func mismatch(signed string) *refusal {
	return &refusal{http.StatusBadRequest, "SignatureDoesNotMatch", "Specified signature is not matched with our calculation. server string to sign is:" + signed}
}

// refusalOf translates an error of the broker for the client.
func (c *call) refusalOf(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	var e *topology.Error
	if !errors.As(err, &e) {
		c.s.Logger.Error("OpenAPI request failed", "action", c.action, "request", c.id, "error", err)
		return internalError
	}
	about := e.Resource.Kind
	switch {
	case e.Fault == topology.Differs && about == topology.QueueResource:
		return &refusal{http.StatusBadRequest, "QueueHasDiffField", e.Text}
	case e.Fault == topology.Differs:
		return &refusal{http.StatusBadRequest, "ExchangeHasDiffFields", e.Text}
	case e.Fault == topology.BadName && about == topology.TopicResource:
		return invalid("BindingKey", e.Text)
	case e.Kind == topology.AccessRefused, e.Kind == topology.NotAllowed:
		return forbidden
	case e.Kind == topology.NotFound && e.Resource == (topology.Resource{}):
		return noVHost
	case e.Kind == topology.NotFound && about == topology.QueueResource:
		return noQueue
	case e.Kind == topology.NotFound:
		return noExchange
	case e.Kind == topology.ResourceLocked:
		return &refusal{http.StatusBadRequest, "QueueExclusive", e.Text}
	case e.Kind == topology.Protected:
		return &refusal{http.StatusBadRequest, "OperationDenied.Protected", e.Text}
	}
	return &refusal{http.StatusBadRequest, "InvalidParameter", e.Text}
}

// isKind says whether an error of the broker is of a kind.
func isKind(err error, k topology.Kind) bool {
	var e *topology.Error
	return errors.As(err, &e) && e.Kind == k
}
