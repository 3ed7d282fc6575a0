package torture

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// story keeps the last steps of a run.
type story struct {
	began time.Time
	log   func(string)

	mu    sync.Mutex
	steps lines // what was done
	said  lines // what nodes logged
}

// lines are the last so many of all that were added.
type lines struct {
	keep int
	all  []string
}

func (l *lines) add(s string) {
	l.all = append(l.all, s)
	if len(l.all) > 2*l.keep {
		l.all = append([]string(nil), l.all[l.keep:]...)
	}
}

func (l *lines) last() []string { return l.all[max(len(l.all)-l.keep, 0):] }

func newStory(log func(string)) *story {
	return &story{began: time.Now(), log: log, steps: lines{keep: 40}, said: lines{keep: 100}}
}

// step notes what was done.
func (s *story) step(format string, args ...any) {
	text := s.stamp() + fmt.Sprintf(format, args...)
	s.mu.Lock()
	s.steps.add(text)
	s.mu.Unlock()
	s.log(text)
}

// hear notes what a node has logged.
func (s *story) hear(text string) {
	text = s.stamp() + text
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said.add(text)
}

func (s *story) stamp() string {
	return fmt.Sprintf("%8.3fs ", time.Since(s.began).Seconds())
}

func (s *story) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "last steps:\n" + strings.Join(s.steps.last(), "\n") +
		"\nlast words of the nodes:\n" + strings.Join(s.said.last(), "\n")
}
