// Package scale shows what a node takes when there is very much in it: memory and
// disk for a long queue, deadlines by the million, a start after a crash, what
// stays on disk when most messages go. The sizes are small unless -scale is given;
// every run prints what it measured.
package scale
