package ctl

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit codes of rabbitmqctl, after sysexits.h.
const (
	exitUsage       = 64
	exitData        = 65
	exitNoUser      = 67
	exitUnavailable = 69
	exitSoftware    = 70
	exitTempFail    = 75
	exitNoPerm      = 77
	exitInterrupted = 130 // as a shell shows SIGINT; ours
)

// failure ends the program with a code. text is printed as it is.
type failure struct {
	code int
	text string
}

// Error returns the text.
func (f *failure) Error() string { return f.text }

// fail is a failure in rabbitmqctl's form, the text on a line after "Error:".
func fail(code int, format string, args ...any) error {
	return &failure{code, "Error:\n" + fmt.Sprintf(format, args...)}
}

// failPlainly is fail without "Error:", where rabbitmqctl prints only the text.
func failPlainly(code int, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

func noVHost(name string) error {
	return failPlainly(exitData, "Virtual host '%s' does not exist", name)
}

// argumentError is a value that a verb does not accept; the usage is shown with it.
type argumentError struct{ text string }

func (e *argumentError) Error() string { return e.text }

func badArgument(format string, args ...any) error {
	return &argumentError{fmt.Sprintf(format, args...)}
}

// invalidArguments is the failure that shows the given arguments and the usage.
func invalidArguments(c *cobra.Command, args []string, what string) error {
	given := append([]string{c.Name()}, args...)
	own := c.LocalNonPersistentFlags()
	c.Flags().Visit(func(f *pflag.Flag) {
		if own.Lookup(f.Name) == nil {
			return // an option of all verbs, which may be a password
		}
		given = append(given, "--"+f.Name)
		if f.Value.Type() != "bool" {
			given = append(given, f.Value.String())
		}
	})
	return usageFailure(c, what, strings.Join(given, " "))
}

// mustBe says what the value of an option must be, by its type.
var mustBe = map[string]string{
	"int": "a whole number", "int64": "a whole number", "uint": "a whole number, not negative", "uint64": "a whole number, not negative",
	"float64": "a number", "bool": "true or false", "duration": "a time such as 200ms, 30s or 2h",
}

// invalidOption is invalidArguments for options that could not be read.
func invalidOption(c *cobra.Command, err error) error {
	option := err.Error()
	if unknown, ok := strings.CutPrefix(option, "unknown flag: "); ok {
		option = unknown + " : "
	}
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) {
		if must, known := mustBe[wrong.GetFlag().Value.Type()]; known { // Go's own words name its functions
			option = fmt.Sprintf("--%s '%s' must be %s", wrong.GetFlag().Name, wrong.GetValue(), must)
		}
	}
	return usageFailure(c, "Invalid options for this command:\n"+option, c.Name())
}

func usageFailure(c *cobra.Command, what, given string) error {
	code := exitUsage
	if strings.HasPrefix(what, "Bad argument") {
		code = exitData // as rabbitmqctl
	}
	return &failure{code, fmt.Sprintf("Error (argument validation): %s\nArguments given:\n\t%s\n\nUsage\n\n%s %s",
		what, given, programUsage(c), useOf(c))}
}

// useOf is how a command is called, without the program.
func useOf(c *cobra.Command) string {
	if c.Parent() != nil && c.Parent() != c.Root() {
		return c.Parent().Name() + " " + c.Use
	}
	return c.Use
}

func programUsage(c *cobra.Command) string {
	return c.Root().Name() + " [--node <node>] [--longnames] [--quiet]"
}

// maxDistance is how many letters a name may be off to be suggested.
const maxDistance = 3

// nearest is the verb whose name is closest to what was typed, "" if none is close.
func nearest(root *cobra.Command, typed string) string {
	for d := range min(maxDistance, max(1, len(typed)/2)) {
		root.SuggestionsMinimumDistance = d + 1
		if names := root.SuggestionsFor(typed); len(names) > 0 {
			return names[0]
		}
	}
	return ""
}

// unknownVerb suggests the nearest name.
func unknownVerb(root *cobra.Command, name string) error {
	text := fmt.Sprintf("\nCommand '%s' not found. \n", name)
	if near := nearest(root, name); near != "" {
		return &failure{exitUsage, text + fmt.Sprintf("Did you mean '%s'? \n", near)}
	}
	return &failure{exitUsage, text + fmt.Sprintf("\nUsage\n\n%s <command> [<command options>]\n\nUse '%s help' for a list of the commands.", programUsage(root), root.Name())}
}
