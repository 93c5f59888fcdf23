// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fairqueue

// share is what one tenant has of a queue. A request is in the inner queue, in
// a backlog, or both, if it was delayed and then added without a delay.
type share[request comparable] struct {
	running  int
	admitted map[request]int // requests in the inner queue that may run, with their priorities
	waiting  map[request]int // requests in a backlog, with their priorities
	levels   map[int]*level[request]
}

// level is one priority.
type level[request comparable] struct {
	admitted int // how many of share.admitted have the priority
	// held and then backlog are the waiting requests in order. One whose
	// priority in share.waiting is another, or that is not there, has left.
	held    []request // those whose turn had come
	backlog []request
}

// pop removes the next waiting request.
func (l *level[request]) pop() (r request, ok bool) {
	from := &l.held
	if len(l.held) == 0 {
		from = &l.backlog
	}
	if len(*from) == 0 {
		return r, false
	}
	r, *from = (*from)[0], (*from)[1:]
	return r, true
}

func newShare[request comparable]() *share[request] {
	return &share[request]{
		admitted: map[request]int{},
		waiting:  map[request]int{},
		levels:   map[int]*level[request]{},
	}
}

// has reports whether a request is admitted.
func (s *share[request]) has(r request) bool {
	_, ok := s.admitted[r]
	return ok
}

func (s *share[request]) isEmpty() bool {
	return s.running+len(s.admitted)+len(s.waiting) == 0
}

func (s *share[request]) level(priority int) *level[request] {
	l := s.levels[priority]
	if l == nil {
		l = &level[request]{}
		s.levels[priority] = l
	}
	return l
}

// admit reports whether a request that is added belongs into the inner queue.
func (s *share[request]) admit(r request, priority, limit int) bool {
	if was, ok := s.admitted[r]; ok {
		if priority > was { // as in the inner queue
			s.leave(r)
			s.enter(r, priority)
		}
		return true
	}
	if was, ok := s.waiting[r]; ok && was >= priority {
		return false
	}
	if s.running+s.level(priority).admitted < limit {
		delete(s.waiting, r)
		s.enter(r, priority)
		return true
	}
	s.wait(r, priority)

	return false
}

// run reports whether a request that the inner queue hands out may run. If not,
// it waits, and is the next to be admitted.
func (s *share[request]) run(r request, limit int) bool {
	priority := s.admitted[r]
	s.leave(r)
	if s.running < limit {
		s.running++
		return true
	}
	s.waiting[r] = priority
	l := s.level(priority)
	l.held = append(l.held, r)

	return false
}

func (s *share[request]) enter(r request, priority int) {
	s.admitted[r] = priority
	s.level(priority).admitted++
}

func (s *share[request]) leave(r request) {
	s.level(s.admitted[r]).admitted--
	delete(s.admitted, r)
}

func (s *share[request]) wait(r request, priority int) {
	s.waiting[r] = priority
	l := s.level(priority)
	l.backlog = append(l.backlog, r)
}

// refill moves requests from backlogs into the inner queue, as many as there is
// room for, and returns them by priority.
func (s *share[request]) refill(limit int) map[int][]request {
	var admitted map[int][]request
	for priority, l := range s.levels {
		for s.running+l.admitted < limit {
			r, more := l.pop()
			if !more {
				break
			}
			if was, ok := s.waiting[r]; !ok || was != priority {
				continue
			}
			delete(s.waiting, r)
			s.enter(r, priority)
			if admitted == nil {
				admitted = map[int][]request{}
			}
			admitted[priority] = append(admitted[priority], r)
		}
		if l.admitted+len(l.held)+len(l.backlog) == 0 {
			delete(s.levels, priority)
		}
	}

	return admitted
}
