package api

import (
	"net/http"
	"slices"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/safety/bug"
)

// stop answers, then stops the server in order: ours, for `bartleby stop`.
func (s *server) stop(*request) (any, error) {
	if s.Stop == nil {
		return nil, &failure{http.StatusNotImplemented, "not_implemented", "this node cannot be stopped by the API"}
	}
	go bug.Guarded(s.Logger, "the stop", s.Stop)() // it waits for requests, this one included; the server owns it
	return nil, nil
}

// AppStopped is the error of a node whose application is stopped, on its control socket (server.Stopped).
const AppStopped = "app_stopped"

// stopApp answers, then stops all but the process: ours, for `rabbitmqctl stop_app`. Only the control socket starts the application
// again, so it is asked there.
func (s *server) stopApp(r *request) (any, error) {
	switch {
	case s.StopApp == nil:
		return nil, &failure{http.StatusNotImplemented, "not_implemented", "the application of this node cannot be stopped alone"}
	case !r.local:
		return nil, badRequest("stop_app and start_app go through the node's data directory: a node whose application is stopped answers nowhere else")
	}
	s.StopApp() // the server owns what follows
	return nil, nil
}

// startApp has nothing to do: the application that answers runs.
func (s *server) startApp(*request) (any, error) { return nil, nil }

// setAlarm raises an alarm, or takes that back: ours, for `rabbitmqctl eval 'rabbit_alarm:set_alarm(...).'`, with which tests of
// clients block their publishers.
func (s *server) setAlarm(r *request) (any, error) {
	if s.SetAlarm == nil {
		return nil, &failure{http.StatusNotImplemented, "not_implemented", "this node has no alarms to raise"}
	}
	name, err := r.text("alarm")
	if err != nil {
		return nil, err
	}
	alarm, ok := map[string]broker.Alarm{"memory": broker.Memory, "disk": broker.Disk}[name]
	active, isBool := r.body["active"].(bool)
	if !ok || !isBool {
		return nil, badRequest(`the body must have "alarm", which is memory or disk, and "active", which is true or false`)
	}
	s.SetAlarm(alarm, active)
	return nil, nil
}

// setMemoryWatermark changes the memory limit until the next start: ours, for
// `rabbitmqctl set_vm_memory_high_watermark`. The body holds "fraction" or "bytes".
func (s *server) setMemoryWatermark(r *request) (any, error) {
	return nil, r.setLimit(s.SetMemoryWatermark, "this node has no memory limit to set")
}

// setDiskFreeLimit does the same with free disk, for `rabbitmqctl set_disk_free_limit`.
func (s *server) setDiskFreeLimit(r *request) (any, error) {
	return nil, r.setLimit(s.SetDiskFreeLimit, "this node has no limit of free disk to set")
}

// setLimit calls set with the limit in the body, if set is not nil.
func (r *request) setLimit(set func(fraction float64, bytes int64) error, none string) error {
	if set == nil {
		return &failure{http.StatusNotImplemented, "not_implemented", none}
	}
	fraction, hasFraction := numberOf(r.body["fraction"])
	bytes, hasBytes := r.body["bytes"].(int64)
	if hasFraction == hasBytes || hasFraction && !(fraction >= 0) || hasBytes && bytes < 0 {
		return badRequest(`the body must have either "fraction" or "bytes", and neither may be negative`)
	}
	return set(fraction, bytes)
}

// logLevels are the levels that can be set, by RabbitMQ's names.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency", "none"}

var noLogs = &failure{http.StatusNotImplemented, "not_implemented", "this node's log is that of the program around it"}

// logLevel is ours, for `rabbitmqctl environment`.
func (s *server) logLevel(*request) (any, error) {
	if s.LogLevel == nil {
		return nil, noLogs
	}
	return map[string]any{"level": s.LogLevel()}, nil
}

// setLogLevel changes the level of all logs until the next start or another level in the
// configuration: ours, for `rabbitmqctl set_log_level`.
func (s *server) setLogLevel(r *request) (any, error) {
	level, err := r.text("level")
	if err != nil {
		return nil, err
	}
	switch {
	case s.SetLogLevel == nil:
		return nil, noLogs
	case !slices.Contains(logLevels, level):
		return nil, badRequest("level " + level + " is not supported. Try one of debug, info, warning, error, critical, none")
	}
	return nil, s.SetLogLevel(level)
}

// checkLogin is ours, for `rabbitmqctl authenticate_user`: 204 if the password is right.
func (s *server) checkLogin(r *request) (any, error) {
	if err := missingKeys(r.body, "user", "password"); err != nil {
		return nil, err
	}
	return nil, r.checkPassword()
}
