// Package docs has no code but its tests: they hold the user's pages to what they say. Folder causes has the
// consumer that a page runs.
// What a fenced block is for stands behind its language:
//
//	```sh run            commands, run by bash against a node of the page's own, in the
//	                     order of the page and in one session
//	```sh run java       the same, if the flag -java is given; make docs gives it
//	```text output       what the commands before it print; … stands for any text in a
//	                     line, a line … for any lines
//	```java from FILE    lines of a file of the repository; a line … leaves some out
//
// Links between pages must lead somewhere, in all that is written for people.
//
// A page in Chinese (NAME.zh.md) has the blocks of the English page (NAME.md), so that
// what is run for one holds for the other.
package docs
