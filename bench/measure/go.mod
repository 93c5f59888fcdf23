// What the measured programs share. A module of its own without requirements,
// so that programs can use it whose dependencies have to be years old.
module github.com/fleetcache/fleetcache/bench/measure

go 1.26.0
