<?php

// laravel/framework 13, config/cache.php: what counts here.
return [
    'default' => env('CACHE_STORE', 'database'),
    'stores' => [
        'array' => ['driver' => 'array'],
        'database' => ['driver' => 'database'],
        'file' => ['driver' => 'file'],
        'memcached' => ['driver' => 'memcached'],
        'redis' => [
            'driver' => 'redis',
            'connection' => env('REDIS_CACHE_CONNECTION', 'cache'),
            'lock_connection' => env('REDIS_CACHE_LOCK_CONNECTION', 'default'),
        ],
        'dynamodb' => ['driver' => 'dynamodb'],
        'octane' => ['driver' => 'octane'],
    ],
    'prefix' => env('CACHE_PREFIX', Str::slug(env('APP_NAME', 'laravel')).'-cache-'),
];
