<?php

// laravel/framework 11 and later, config/session.php: what counts here.
return [
    'driver' => env('SESSION_DRIVER', 'database'),
    'connection' => env('SESSION_CONNECTION'),
    'store' => env('SESSION_STORE'),
];
