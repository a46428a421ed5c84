package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// client is a directory that holds the executables setup and run, and stories.
type client struct {
	name    string
	dir     string // absolute
	stories []story
}

// story is a line of a client's stories.
type story struct {
	name  string
	ours  bool // only Bartleby has what it is about
	alone bool // it restarts the broker: nothing else may run meanwhile
}

// cell is one client playing one story.
type cell struct{ client, story string }

// findClients returns the clients in root by name. A directory without stories is not
// one: it holds what several share.
func findClients(root string) (clients []client, err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	lists, err := filepath.Glob(filepath.Join(root, "*", "stories"))
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			return nil, err
		}
		dir := filepath.Dir(list)
		c := client{name: filepath.Base(dir), dir: dir}
		if c.stories, err = parseStories(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", list, err)
		}
		clients = append(clients, c)
	}
	if len(clients) == 0 {
		return nil, fmt.Errorf("%s holds no client", root)
	}
	return clients, nil
}

// parseStories reads a story a line: its name, then words about it; # begins a comment.
func parseStories(text string) (stories []story, err error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		s := story{name: words[0]}
		for _, word := range words[1:] {
			switch word {
			case "bartleby":
				s.ours = true
			case "alone":
				s.alone = true
			default:
				return nil, fmt.Errorf("story %q: unknown word %q", s.name, word)
			}
		}
		if slices.ContainsFunc(stories, func(t story) bool { return t.name == s.name }) {
			return nil, fmt.Errorf("story %q stands there twice", s.name)
		}
		stories = append(stories, s)
	}
	if len(stories) == 0 {
		return nil, fmt.Errorf("no story")
	}
	return stories, lines.Err()
}

// selected returns the clients and stories that the arguments, CLIENT or CLIENT/STORY,
// name; without arguments all. It is an error if one names nothing.
func selected(clients []client, args []string) (chosen []client, err error) {
	if len(args) == 0 {
		return clients, nil
	}
	wanted := map[string]bool{} // arguments, whether they named something
	for _, arg := range args {
		wanted[arg] = false
	}
	for _, c := range clients {
		all := c.stories
		c.stories = nil
		for _, s := range all {
			for _, name := range []string{c.name, c.name + "/" + s.name} {
				if _, ok := wanted[name]; ok {
					wanted[name] = true
					if !slices.Contains(c.stories, s) {
						c.stories = append(c.stories, s)
					}
				}
			}
		}
		if len(c.stories) > 0 {
			chosen = append(chosen, c)
		}
	}
	for _, arg := range args {
		if !wanted[arg] {
			return nil, fmt.Errorf("no client or story is called %q", arg)
		}
	}
	return chosen, nil
}
