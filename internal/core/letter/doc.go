// Package letter reads dead letters: whether a message is one, why it died in the words of its consumer, which group it
// belongs to, and whether a query selects it.
//
// The Dead Letter Office (internal/run/office) calls it for each message of a queue, so it decodes only what is asked
// for. It is pure: it does no I/O and owns no state besides the memory of a Reader.
package letter
