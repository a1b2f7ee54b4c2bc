<?php
// Pushes jobs as an application does.
// Arguments: PORT DATABASE PREFIX QUEUE KIND FIRST COUNT [DELAY]; KIND is class or string.

require __DIR__.'/laravel.php';

[, , , , , $kind, $first, $count] = $argv;
$delay = $argv[8] ?? null;
$queue = queue(90);
for ($id = (int) $first; $id < $first + $count; $id++) {
    $job = $kind === 'class' ? new ChargeOrder($id) : 'App\\Jobs\\Legacy@run';
    $data = $kind === 'class' ? '' : ['orderId' => $id, 'big' => 123456789012345678, 'none' => []];
    $delay === null ? $queue->push($job, $data, $name) : $queue->later((int) $delay, $job, $data, $name);
}
